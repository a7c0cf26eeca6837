/**
 * The dialects of engines, and what their refusals have taught: a parameter that a replica calls
 * unknown is left out from then on, so that one request pays for it with a second try and no other
 * does. Kept in memory, for as long as the settings of the engine stay.
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
  /** Whether the template of a replica opens a block of thinking in the prompt, once it is known. */
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

  /** Whether a refusal teaches something, so that the request may pass when it is written anew. */
  learn(replica: Replica, request: ChatRequest, refusal: EngineFailure): boolean {
    return this.#learnOf(replica, refusal, (parameter) => mayHave(request, parameter));
  }

  /** The same for a body that is written without a dialect but for the salt. */
  learnSalt(replica: Replica, refusal: EngineFailure): boolean {
    return this.#learnOf(replica, refusal, ({ name }) => name === 'cache_salt');
  }

  #learnOf(
    replica: Replica,
    { body, isOwn }: EngineFailure,
    wasSent: (parameter: RefusedParameter) => boolean,
  ): boolean {
    // Our own engine knows what we send: what it refuses is wrong.
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
   * Whether the template of one of the replicas may open a block of thinking in the prompt: until
   * an answer has shown that it does not.
   */
  mayOpenThinking(replicas: readonly Replica[]): boolean {
    return replicas.some((replica) => this.#opensThinking.get(replicaKey(replica)) !== false);
  }

  /**
   * Notes what a stream has shown. A model that is asked to think may answer at once for once, so
   * of such a one only a block that was open counts; and a template that has opened one goes on.
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
