/** The engine call of a chat run: the body per replica, affinity, and which headers are passed on. */
import type { EngineCall, EngineHead, Replica } from '../../engines/engines.ts';
import { engineRequest } from '../../wire/engine-request.ts';
import type { ChatRun } from './chat-run.ts';

/** A whole answer of more than this is not one: 128 choices of 128 k tokens stay below it. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** An answer in one piece has its first byte when all of it is there. */
const WHOLE_FIRST_BYTE_MS = 600_000;

/** The call of the current round. */
export function engineCall(run: ChatRun): EngineCall {
  const { request, model, call, parts, additions } = run;
  const round = run.rounds.current;
  const body = (replica: Replica): Buffer =>
    engineRequest(request, {
      model: replica.model,
      dialect: parts.dialectOf(replica.engine),
      abilities: {
        reasoning: model.capabilities.has('reasoning'),
        reasoningEffort: model.capabilities.has('reasoningEffort'),
        ...(model.reasoningEfforts === undefined
          ? {}
          : { reasoningEffortOptions: model.reasoningEfforts }),
      },
      maxOutputTokens: round.outputTokens,
      ...(run.systemPrompt === undefined ? {} : { systemPrompt: run.systemPrompt }),
      ...(round.messages === undefined ? {} : { messages: round.messages }),
      ...(round.extraTools.length === 0 ? {} : { extraTools: round.extraTools }),
      ...(additions.socialSearch === undefined
        ? {}
        : { extraMembers: additions.socialSearch.membersFor(replica.engine) }),
    });
  return {
    work: 'chat',
    replicas: model.replicas,
    method: 'POST',
    path: '/chat/completions',
    contentType: 'application/json',
    buildBody: body,
    affinityKey: request.promptCacheKey,
    signal: call.signal,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    ...(request.stream ? {} : { timeLimits: { firstByteMs: WHOLE_FIRST_BYTE_MS } }),
    accept: request.stream ? ['text/event-stream'] : ['application/json'],
  };
}

const FLAGS = [
  'is-blurred',
  'is-content-violation',
  'is-adult-model-content-violation',
  'contains-minor',
  'control-instance',
];

/** Content flags that an engine reports, under our own prefix. */
export function flagsOf(head: EngineHead, serviceName: string): Record<string, string> {
  const flags: Record<string, string> = {};
  for (const flag of FLAGS) {
    const value = head.headers[`x-${serviceName}-${flag}`] ?? head.headers[`x-svc-${flag}`];
    if (typeof value === 'string') flags[`x-${serviceName}-${flag}`] = value;
  }
  return flags;
}
