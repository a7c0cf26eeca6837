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
      abilities: run.abilities,
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
    caller: call.caller.accountId,
    signal: call.signal,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    ...(request.stream ? {} : { timeLimits: { firstByteMs: WHOLE_FIRST_BYTE_MS } }),
    accept: request.stream ? ['text/event-stream'] : ['application/json'],
  };
}

const FLAG =
  /^x-([a-z\d]+)-(is-blurred|is-content-violation|is-adult-model-content-violation|contains-minor|control-instance)$/;

/** Content flags that an engine reports, by our own name or as `svc`, under our own. */
export function flagsOf(head: EngineHead, serviceName: string): Record<string, string> {
  const flags: Record<string, string> = {};
  for (const name in head.headers) {
    const [, prefix, flag] = name.startsWith('x-') ? (FLAG.exec(name) ?? []) : [];
    const value = head.headers[name];
    if (flag === undefined || typeof value !== 'string') continue;
    const own = `x-${serviceName}-${flag}`;
    if (prefix === serviceName) flags[own] = value;
    else if (prefix === 'svc') flags[own] ??= value;
  }
  return flags;
}
