/**
 * Facts learned from responses of engines, kept in memory.
 *
 * - Dialects: a parameter that a replica calls unknown is left out for an hour, so that only one
 *   request needs a second attempt. Kept while the settings of the engine stay. Texts of the request
 *   teach nothing, because the parameter is left out for every caller.
 * - Protocols: a model that an engine serves by the Responses API only is called by it for an hour.
 * - Templates: how many tokens the chat template of a model adds to a prompt. This is the operator's
 *   setting, or an assumption that reports of engines raise. Reported counts above the bound of the
 *   hold are not billed, so without this a long template would be at the operator's cost. Only short
 *   plain prompts are used, whose count is nearly all template. Two reports are needed and the bound
 *   is limited, so that wrong counts of an engine have little effect.
 * - Tokens without a price of their own, which are logged.
 */
import { type Clock, HOUR_MS } from '../core/clock.ts';
import { replicaKey } from '../engines/learned-replicas.ts';
import type { Log } from '../core/log.ts';
import type { EngineFailure, Replica } from '../engines/engines.ts';
import type { JsonObject } from '../json/json-scan.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import {
  type EngineDialect,
  localDialect,
  RESPONSES_ONLY,
  type RefusedParameter,
  withoutRefused,
} from './wire/engine-dialect.ts';
import { mayHave } from './wire/engine-request.ts';
import { echoOf, type IsEcho, refusedParameters } from './wire/refused-parameters.ts';
import { type CatalogModel, type Price, unpricedKinds } from '../catalog/catalog.ts';
import type { TokenUsage } from '../engines/usage.ts';
import { tokensAtLeast } from '../core/token-count.ts';

const MAX_LEARNED = 1_024;
/** An engine may know a parameter after an update; to learn again takes one more attempt. */
const LEARNED_MS = HOUR_MS;
const RESPONSES_PATH = 'v1/responses';

interface LearnedDialect {
  readonly from: EngineDialect;
  readonly dialect: EngineDialect;
  /** Monotonic. */
  readonly untilMs: number;
}

export class LearnedDialects {
  readonly #configured: () => ReadonlyMap<string, EngineDialect>;
  readonly #learned = new Map<string, LearnedDialect>();
  /** Whether the chat template of a replica opens a thinking block in the prompt, once known. */
  readonly #opensThinking = new Map<string, boolean>();
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(configured: () => ReadonlyMap<string, EngineDialect>, clock: Clock, log: Log) {
    this.#configured = configured;
    this.#clock = clock;
    this.#log = log;
  }

  of(replica: Replica): EngineDialect {
    const { engine } = replica;
    const configured = this.#configured().get(engine) ?? localDialect(engine);
    if (this.#learned.size === 0) return configured;
    const learned = this.#learned.get(replicaKey(replica));
    const isKept = learned?.from === configured && this.#clock.monotonicMs() < learned.untilMs;
    return isKept ? learned.dialect : configured;
  }

  /**
   * Whether the error response names a parameter to leave out, or the protocol of the model, so that
   * a rewritten request may pass. `more`: texts of the body that are not in `request`.
   */
  learn(replica: Replica, request: ChatRequest, refusal: EngineFailure, more?: unknown): boolean {
    const isEcho = echoOf([request.fields, more]);
    if (refusal.reason === 'unsupported') return this.#learnProtocol(replica, refusal, isEcho);
    const wasSent = (parameter: RefusedParameter): boolean => mayHave(request, parameter);
    return this.#learnOf(replica, refusal, wasSent, isEcho);
  }

  /** As `learn`, for a body that contains no field of a dialect but the salt. */
  learnSalt(replica: Replica, request: JsonObject, refusal: EngineFailure): boolean {
    const isSalt = ({ name }: RefusedParameter): boolean => name === 'cache_salt';
    return this.#learnOf(replica, refusal, isSalt, echoOf(request));
  }

  /** The model is only available by the Responses API, as the engine says. */
  #learnProtocol(replica: Replica, { body, isOwn }: EngineFailure, isEcho: IsEcho): boolean {
    const isSaid = !isOwn && body?.includes(RESPONSES_PATH) === true;
    if (!isSaid || this.of(replica).protocol !== 'openai' || isEcho(RESPONSES_PATH)) return false;
    this.#remember(replica, RESPONSES_ONLY);
    this.#log.info(
      { replica: replica.engine, model: replica.model },
      'An engine serves a model only by the Responses API; later requests use it',
    );
    return true;
  }

  #learnOf(
    replica: Replica,
    { body, isOwn }: EngineFailure,
    wasSent: (parameter: RefusedParameter) => boolean,
    isEcho: IsEcho,
  ): boolean {
    // An error response of an embedded engine is about the request itself.
    if (body === null || isOwn) return false;
    const before = this.of(replica);
    let dialect = before;
    for (const parameter of refusedParameters(body, isEcho)) {
      if (wasSent(parameter)) dialect = withoutRefused(dialect, parameter) ?? dialect;
    }
    if (dialect === before) return false;
    this.#remember(replica, dialect);
    const { outputCap, cacheSalt, leaveOut, leaveOutOfMessages } = dialect;
    const fields = { replica: replica.engine, model: replica.model, outputCap, cacheSalt };
    this.#log.info(
      { ...fields, leaveOut, leaveOutOfMessages },
      'An engine rejected a parameter; later requests omit it',
    );
    return true;
  }

  #remember(replica: Replica, dialect: EngineDialect): void {
    const from = this.#configured().get(replica.engine) ?? localDialect(replica.engine);
    const untilMs = this.#clock.monotonicMs() + LEARNED_MS;
    remember(this.#learned, replicaKey(replica), { from, dialect, untilMs });
  }

  /**
   * Whether the template of any replica may open a thinking block: until a completion shows
   * otherwise.
   */
  mayOpenThinking(replicas: readonly Replica[]): boolean {
    return replicas.some((replica) => this.#opensThinking.get(replicaKey(replica)) !== false);
  }

  /**
   * Notes the reasoning of a stream. A model with thinking enabled may skip it once, so only an
   * opened block counts then, and a template that has opened one is assumed to continue.
   */
  noteThinking(replica: Replica, opens: boolean, isThinking: boolean): void {
    const key = replicaKey(replica);
    if (opens || (!isThinking && !this.#opensThinking.has(key))) {
      remember(this.#opensThinking, key, opens);
    }
  }
}

function remember<Value>(into: Map<string, Value>, key: string, value: Value): void {
  into.delete(key);
  const [oldest = ''] = into.keys();
  if (into.size >= MAX_LEARNED) into.delete(oldest);
  into.set(key, value);
}

/** Bound of the template around one message, which each hold includes. */
export const TOKENS_PER_MESSAGE = 16;
export const USUAL_TEMPLATE_TOKENS = 256;
const MAX_LEARNED_TOKENS = 4_096;
/** A prompt of this size has at most about a quarter as many tokens. */
const MAX_PROMPT_BYTES = 256;
const MAX_MODELS = 10_000;

interface LearnedTemplate {
  tokens: number;
  /** Tokens that the last short prompt needed beyond the bound; else 0. */
  last: number;
}

type TemplateModel = Pick<CatalogModel, 'id' | 'templateTokens'>;

interface CountedPrompt {
  readonly promptBytes: number;
  readonly messageCount: number;
  readonly promptTokens: number;
}

export class LearnedTemplates {
  readonly #ofModel = new Map<string, LearnedTemplate>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  tokensOf({ id, templateTokens }: TemplateModel): number {
    if (templateTokens !== undefined) return templateTokens;
    return this.#ofModel.get(id)?.tokens ?? USUAL_TEMPLATE_TOKENS;
  }

  /** Two consecutive reports above the bound raise it to the lesser of both. */
  note({ id, templateTokens }: TemplateModel, prompt: CountedPrompt): void {
    const { promptBytes, messageCount, promptTokens } = prompt;
    if (templateTokens !== undefined || promptBytes > MAX_PROMPT_BYTES) return;
    let learned = this.#ofModel.get(id);
    const others = tokensAtLeast(promptBytes) + TOKENS_PER_MESSAGE * messageCount;
    const needed = Math.min(MAX_LEARNED_TOKENS, promptTokens - others);
    if (needed <= (learned?.tokens ?? USUAL_TEMPLATE_TOKENS)) {
      if (learned !== undefined) learned.last = 0;
      return;
    }
    if (learned === undefined) {
      if (this.#ofModel.size >= MAX_MODELS) return;
      learned = { tokens: USUAL_TEMPLATE_TOKENS, last: 0 };
      this.#ofModel.set(id, learned);
    }
    const confirmed = Math.min(learned.last, needed);
    learned.last = needed;
    if (confirmed <= learned.tokens) return;
    learned.tokens = confirmed;
    this.#log.info(
      { model: id, templateTokens: confirmed },
      'The chat template of a model is longer than assumed; holds include it from now on',
    );
  }
}

/** Logs tokens without a price of their own, once for each price and kind. */
export class UnpricedTokens {
  readonly #logged = new Set<string>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  note(usage: TokenUsage, model: string, price: Price): void {
    for (const kind of unpricedKinds(usage, price)) {
      const key = `${price.version} ${kind}`;
      if (this.#logged.has(key) || this.#logged.size >= MAX_LEARNED) continue;
      this.#logged.add(key);
      this.#log.warn(
        { model, kind },
        'An engine reported tokens that have no price of their own; they are billed at the price of other tokens. Set this kind in the price of the model',
      );
    }
  }
}
