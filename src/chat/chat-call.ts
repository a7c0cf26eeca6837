/**
 * One engine call of a chat: the body for each replica, affinity, and how much is read; of a call
 * whose answer is taken whole also what was read of it.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { EngineCall, EngineFailure, Replica, WholeCall } from '../engines/engines.ts';
import type { TimeLimits } from '../net/upstream-pool.ts';
import { answerOptions, type ChatRun } from './chat-run.ts';
import {
  type AnswerFrame,
  type AnswerOptions,
  type ChatAnswer,
  readChatAnswer,
} from './wire/chat-response.ts';
import { engineRequest } from './wire/engine-request.ts';

/** An answer of more than this is not one, whatever was asked for. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Of an answer whose grant is small: names, settings and figures that an engine adds. */
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** One token as a chunk for each of its characters, or with its twenty likeliest others. */
const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;
/** An answer in one piece has its first byte when all of it is there. */
const WHOLE_LIMITS = { firstByteMs: 600_000 };
const STREAM_TYPES = ['text/event-stream'];
const WHOLE_TYPES = ['application/json'];

/** The call of the current round. */
export class ChatCall implements EngineCall {
  readonly work = 'chat';
  readonly method = 'POST';
  readonly path = '/chat/completions';
  readonly contentType = 'application/json';
  readonly canAmend = true;
  readonly replicas: readonly Replica[];
  readonly affinityKey: string | undefined;
  readonly caller: string;
  readonly signal: Cancelling;
  readonly maxResponseBytes: number;
  readonly timeLimits: Partial<TimeLimits> | undefined;
  readonly accept: readonly string[];
  readonly run: ChatRun;

  constructor(run: ChatRun) {
    const { request, model, round } = run;
    this.run = run;
    this.replicas = model.replicas;
    this.affinityKey = request.promptCacheKey;
    this.caller = run.context.caller.accountId;
    this.signal = run.cancellation;
    // Figures of the prompt's tokens are as long as the prompt.
    const isUnbounded = Object.hasOwn(request.fields, 'prompt_logprobs');
    const tokens = round.outputTokens * request.choiceCount;
    const grantedBytes = MIN_RESPONSE_BYTES + tokens * RESPONSE_BYTES_PER_TOKEN;
    this.maxResponseBytes = isUnbounded
      ? MAX_RESPONSE_BYTES
      : Math.min(MAX_RESPONSE_BYTES, grantedBytes);
    this.timeLimits = request.stream ? undefined : WHOLE_LIMITS;
    this.accept = request.stream ? STREAM_TYPES : WHOLE_TYPES;
  }

  buildBody(replica: Replica, refusal?: EngineFailure): Buffer | undefined {
    const { request, model, parts, additions, round, systemPrompt } = this.run;
    const { dialects } = parts;
    if (refusal !== undefined && !dialects.learn(replica, request, refusal)) return undefined;
    return engineRequest(request, {
      model: replica.model,
      dialect: dialects.of(replica),
      abilities: model,
      maxOutputTokens: round.outputTokens,
      systemPrompt,
      messages: round.messages,
      extraTool: round.searches === 0 ? undefined : additions.autoSearch?.tool,
      extraMembers: additions.socialSearch?.membersFor(replica.engine),
    });
  }
}

/** The same, of which the answer is read whole before it counts as one. */
export class WholeChatCall extends ChatCall implements WholeCall {
  /** What the answer shows, and under what names. */
  readonly options: AnswerOptions & AnswerFrame;
  /** The usable answer that came last. */
  read: ChatAnswer | undefined;

  constructor(run: ChatRun) {
    super(run);
    this.options = answerOptions(run);
  }

  /** An answer that is cut or no chat completion is the engine's failure: another may do better. */
  isUsable(body: Buffer): boolean {
    try {
      this.read = readChatAnswer(body, this.options);
      return true;
    } catch {
      // The engines report it as `garbage` when no replica gives a usable answer.
      return false;
    }
  }
}
