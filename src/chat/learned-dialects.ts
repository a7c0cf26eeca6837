/**
 * The dialects of engines, with what their error responses have shown: a parameter that a replica
 * calls unknown is left out from then on, so that only one request needs a second attempt. Kept in
 * memory while the settings of the engine stay.
 */
import { replicaKey } from '../engines/learned-replicas.ts';
import type { Log } from '../core/log.ts';
import type { EngineFailure, Replica } from '../engines/engines.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import {
  type EngineDialect,
  localDialect,
  type RefusedParameter,
  withoutRefused,
} from './wire/engine-dialect.ts';
import { mayHave } from './wire/engine-request.ts';
import { refusedParameters } from './wire/refused-parameters.ts';

const MAX_LEARNED = 1_024;

interface Learned {
  readonly from: EngineDialect;
  readonly dialect: EngineDialect;
}

export class LearnedDialects {
  readonly #configured: () => ReadonlyMap<string, EngineDialect>;
  readonly #learned = new Map<string, Learned>();
  /** Whether the chat template of a replica opens a thinking block in the prompt, once known. */
  readonly #opensThinking = new Map<string, boolean>();
  readonly #log: Log;

  constructor(configured: () => ReadonlyMap<string, EngineDialect>, log: Log) {
    this.#configured = configured;
    this.#log = log;
  }

  of(replica: Replica): EngineDialect {
    const { engine } = replica;
    const configured = this.#configured().get(engine) ?? localDialect(engine);
    if (this.#learned.size === 0) return configured;
    const learned = this.#learned.get(replicaKey(replica));
    return learned?.from === configured ? learned.dialect : configured;
  }

  /**
   * Whether the error response names a parameter to leave out, so that a rewritten request may
   * pass.
   */
  learn(replica: Replica, request: ChatRequest, refusal: EngineFailure): boolean {
    return this.#learnOf(replica, refusal, (parameter) => mayHave(request, parameter));
  }

  /** As `learn`, for a body that contains no field of a dialect but the salt. */
  learnSalt(replica: Replica, refusal: EngineFailure): boolean {
    return this.#learnOf(replica, refusal, ({ name }) => name === 'cache_salt');
  }

  #learnOf(
    replica: Replica,
    { body, isOwn }: EngineFailure,
    wasSent: (parameter: RefusedParameter) => boolean,
  ): boolean {
    // An error response of an embedded engine is about the request itself.
    if (body === null || isOwn) return false;
    const before = this.of(replica);
    let dialect = before;
    for (const parameter of refusedParameters(body)) {
      if (wasSent(parameter)) dialect = withoutRefused(dialect, parameter) ?? dialect;
    }
    if (dialect === before) return false;
    const from = this.#configured().get(replica.engine) ?? localDialect(replica.engine);
    remember(this.#learned, replicaKey(replica), { from, dialect });
    const { outputCap, cacheSalt, leaveOut, leaveOutOfMessages } = dialect;
    const fields = { replica: replica.engine, model: replica.model, outputCap, cacheSalt };
    this.#log.info(
      { ...fields, leaveOut, leaveOutOfMessages },
      'An engine refused a parameter by its name; it is left out from now on',
    );
    return true;
  }

  /**
   * Whether the template of any replica may open a thinking block: until a completion shows
   * otherwise.
   */
  mayOpenThinking(replicas: readonly Replica[]): boolean {
    return replicas.some((replica) => this.#opensThinking.get(replicaKey(replica)) !== false);
  }

  /**
   * Notes what a stream has shown. A model that was asked to think may skip it once, so only an
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
  if (into.size >= MAX_LEARNED) {
    const oldest = into.keys().next();
    if (oldest.done !== true) into.delete(oldest.value);
  }
  into.set(key, value);
}
