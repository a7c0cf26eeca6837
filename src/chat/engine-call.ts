/** The engine call of a chat run: the body per replica, affinity, and which headers are passed on. */
import type { EngineCall, EngineHead, Replica } from '../engines/engines.ts';
import { engineRequest } from './wire/engine-request.ts';
import type { ChatRun } from './chat-run.ts';

/** An answer of more than this is not one, whatever was asked for. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Of an answer whose grant is small: names, settings and figures that an engine adds. */
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** One token as a chunk for each of its characters, or with its twenty likeliest others. */
const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;
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
      abilities: model,
      maxOutputTokens: round.outputTokens,
      systemPrompt: run.systemPrompt ?? '',
      messages: round.messages,
      extraTool: round.extraTools[0],
      extraMembers: additions.socialSearch?.membersFor(replica.engine),
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
    maxResponseBytes: responseBound(run),
    ...(request.stream ? {} : { timeLimits: { firstByteMs: WHOLE_FIRST_BYTE_MS } }),
    accept: request.stream ? ['text/event-stream'] : ['application/json'],
  };
}

/** How much of an engine's answer is read: what the grant can be worth. */
function responseBound({ request, rounds }: ChatRun): number {
  // Figures of the prompt's tokens are as long as the prompt.
  if (Object.hasOwn(request.fields, 'prompt_logprobs')) return MAX_RESPONSE_BYTES;
  const tokens = rounds.current.outputTokens * request.choiceCount;
  return Math.min(MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES + tokens * RESPONSE_BYTES_PER_TOKEN);
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
