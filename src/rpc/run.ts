/**
 * Runs one request over the nodes: exactly one response for each call, in the order of the request
 * and with the caller's ids, whatever the nodes return. Further nodes are called only as far as the
 * retry class of a method allows. A read whose error says that the node lacks something goes to the
 * other nodes before the caller receives the error. Calls of a batch without a node reply get an
 * error of the server and are not charged; a request without any reply is a Fault.
 *
 * Only the ids, and the tag of a block, are changed in requests and responses.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { Fault } from '../core/faults.ts';
import { isAny } from '../core/is-any.ts';
import type { TryLog } from '../core/request-tries.ts';
import { type ParsedRequest, type Call, callerId } from './parse-request.ts';
import type { ResponseCache } from './response-cache.ts';
import {
  batchReply,
  oneReply,
  requestTooLarge,
  type RpcResponse,
  streamReply,
  unansweredFault,
} from './rpc-response.ts';
import {
  type AttemptFault,
  countReply,
  NodeAttempt,
  type OneReply,
  type RunState,
  type RunSettings,
  type StreamResponse,
} from './node-attempt.ts';
import { blocksOf, isHeadCall } from './block-argument.ts';
import { acceptKnown, dropWrongHashes, isWrongHash } from './broadcast.ts';
import {
  attemptOptions,
  BROKEN,
  creditsOf,
  isOpen,
  isRead,
  isUsable,
  noteResponse,
  noteTime,
  type Source,
} from './call-results.ts';
import { hexNumber, type Network, type NodeKind, RAW_BROADCAST } from './catalogue.ts';
import type { Hedge } from './hedges.ts';
import type { ClassFigures } from './node-figures.ts';
import { ADDED_ID_BYTES, batchRequest, callRequest, chunks } from './request-bytes.ts';
import type { UpstreamGroup } from './upstream-group.ts';
import type { Upstream } from './upstream.ts';

/** Concurrent single calls to a node that violates the batch rules. */
const EXPANDED_AT_ONCE = 8;

/** Nodes that receive a signed transaction at the same time. */
const BROADCAST_NODES = 3;

const NO_BYTES = Buffer.alloc(0);

export interface RunOptions {
  readonly caller: string;
  readonly signal?: Cancelling | undefined;
  /** Receives failed tries at nodes. */
  readonly tries?: TryLog | undefined;
}

/** A reply to one call, from the node of the attempt. */
interface Sent {
  readonly attempt: NodeAttempt;
  readonly reply: OneReply;
  readonly figures: ClassFigures;
}

export class RpcRun implements RunState {
  readonly settings: RunSettings;
  readonly network: Network;
  readonly caller: string;
  readonly signal: Cancelling | undefined;
  readonly deadlineMs: number;
  budgetBytes = 0;
  isOver = false;
  attempts = 0;
  readonly #group: UpstreamGroup;
  readonly #cache: ResponseCache;
  readonly #parsed: ParsedRequest;
  readonly #tries: TryLog | undefined;
  #stream: StreamResponse | undefined;

  constructor(
    settings: RunSettings,
    group: UpstreamGroup,
    cache: ResponseCache,
    parsed: ParsedRequest,
    { caller, signal, tries }: RunOptions,
  ) {
    this.settings = settings;
    this.network = parsed.network;
    this.caller = caller;
    this.signal = signal;
    this.deadlineMs = settings.clock.monotonicMs() + settings.totalTimeoutMs;
    this.#group = group;
    this.#cache = cache;
    this.#parsed = parsed;
    this.#tries = tries;
  }

  async run(): Promise<RpcResponse> {
    const { body, calls, isBatch, network } = this.#parsed;
    const [only] = calls;
    const preparing = this.#group.head.prepare();
    if (preparing !== undefined) await preparing;
    const { served } = this.#group.head;
    if (served !== undefined) {
      const polling = this.#group.head.prepareTags(body);
      if (polling !== undefined) await polling;
      for (const call of calls) {
        call.blocks = blocksOf(body, call, network, this.#group.head);
        if (isHeadCall(body, call, network)) call.result = this.#headResult(served);
      }
    }
    try {
      if (isBatch || only === undefined) await this.#runBatch(calls);
      else if (only.result === undefined) {
        const key = only.method.sharing && this.#cache.keyOf(this.#parsed, only);
        if (key !== undefined) await this.#callShared(only, key);
        if (only.result === undefined && only.response === undefined)
          await this.#callNodes(this.#group.kindFor(only.method.node), calls, false);
      }
      return this.#finish();
    } finally {
      this.isOver = true;
      if (this.budgetBytes > 0) this.settings.budget.give(this.caller, this.budgetBytes);
    }
  }

  /** The head that callers see, as the node would return it. */
  #headResult(head: number): Buffer {
    this.#group.head.refresh();
    return Buffer.from(this.network.family === 'evm' ? `"${hexNumber(head)}"` : String(head));
  }

  async #runBatch(calls: readonly Call[]): Promise<void> {
    const nodes: Call[] = [];
    const bundlers: Call[] = [];
    for (const call of calls) {
      const { node, sharing } = call.method;
      if (call.result !== undefined) continue;
      const key = sharing && this.#cache.keyOf(this.#parsed, call);
      if (key !== undefined) call.result = this.#cache.get(key);
      if (call.result !== undefined) continue;
      (this.#group.kindFor(node) === 'node' ? nodes : bundlers).push(call);
    }
    await Promise.all([
      nodes.length > 0 && this.#callNodes('node', nodes, false),
      bundlers.length > 0 && this.#callNodes('bundler', bundlers, false),
    ]);
    for (const call of calls) {
      const { response, method } = call;
      const key = response && method.sharing && this.#cache.keyOf(this.#parsed, call);
      if (response !== undefined && key !== undefined) this.#cache.keep(key, method, response);
    }
  }

  /** Reads from the cache, or shares the pending call of other callers with the same key. */
  async #callShared(call: Call, key: string): Promise<void> {
    call.result = this.#cache.get(key);
    if (call.result !== undefined) return;
    call.response = await this.#cache.merge(key, async () => {
      await this.#callNodes(this.#group.kindFor(call.method.node), [call], true);
      const { response, fault } = call;
      if (response !== undefined) this.#cache.keep(key, call.method, response);
      // The node quota of one caller must not limit the callers that share the call.
      else if (fault?.fault === 'quota' && !fault.isSent) call.fault = undefined;
      else throw this.#unanswered();
      return response;
    });
  }

  /** Calls the nodes of one kind in turn, each for all open calls. */
  async #callNodes(kind: NodeKind, calls: readonly Call[], isShared: boolean): Promise<void> {
    const { caller, deadlineMs, settings } = this;
    const { body, isBatch } = this.#parsed;
    const preparing = kind === 'node' ? this.#group.prepare(calls) : undefined;
    if (preparing !== undefined) await preparing;
    let candidates = this.#group.candidates(kind, caller, calls);
    let previous: Upstream | undefined;
    const [single] = calls;
    const isBroadcast = !isBatch && single?.method.name === RAW_BROADCAST;
    const sentTo = isBroadcast ? candidates.slice(0, BROADCAST_NODES) : [];
    if (single !== undefined && sentTo.length > 1) {
      await this.#broadcast(sentTo, single);
      if (single.response !== undefined || single.result !== undefined) return;
      candidates = candidates.slice(BROADCAST_NODES);
    }
    for (let index = 0; index < candidates.length; index += 1) {
      const upstream = candidates[index];
      if (upstream === undefined) return;
      const open = index === 0 ? calls : calls.filter((call) => isOpen(call, upstream, caller));
      const [only] = open;
      if (only === undefined) continue;
      if (index > 0 && settings.clock.monotonicMs() >= deadlineMs) return;
      if (previous !== undefined)
        for (const { method } of open) previous.figures.of(method.class).failovers.value += 1;
      previous = upstream;
      const isLast = index === candidates.length - 1;
      const attempt = new NodeAttempt(this, upstream, isLast, isShared, candidates[index + 1]);
      if (open.length === 1) await this.#callOne(attempt, only);
      else await this.#callParts(attempt, chunks(open, upstream));
      let isResponding = this.#stream !== undefined;
      for (const call of open) {
        const { response } = call;
        // A second opinion without a result keeps the null of the previous node.
        if (response === undefined || call.isDoubtful) continue;
        if (response.isNull && call.hadSecondOpinion) continue;
        if (response.error?.lack !== undefined && isRead(call.method)) continue;
        isResponding = call.hedgedTo === undefined;
        if (response.error !== undefined)
          await acceptKnown(attempt, settings, body, call, response.error);
      }
      if (isResponding && (index === 0 || open.length === calls.length))
        this.#group.stick(kind, caller, upstream);
      // A stream is the final response and has one reader.
      if (this.#stream !== undefined) return;
      for (const call of open) if (call.fault?.isAborted === true) return;
    }
  }

  async #callOne(attempt: NodeAttempt, call: Call): Promise<void> {
    const hedge = isRead(call.method) ? this.#hedgeOf(attempt, call) : undefined;
    if (hedge === undefined) this.#keep(await this.#send(attempt, call), call);
    else await this.#sendTwice(attempt, hedge, call);
  }

  #hedgeOf({ upstream, next }: NodeAttempt, call: Call): Hedge<Upstream> | undefined {
    const hedge = this.#group.hedges.plan(upstream, next, call.method.name);
    if (hedge === undefined || !isOpen(call, hedge.to, this.caller)) return undefined;
    const { isNewest, to = 0 } = call.blocks ?? {};
    return isNewest && (hedge.to.head ?? Infinity) < to ? undefined : hedge;
  }

  async #send(attempt: NodeAttempt, call: Call): Promise<Sent> {
    const { body, isBatch } = this.#parsed;
    const { clock, callIds } = this.settings;
    const canStream = !isBatch && !attempt.isShared && call.method.name !== RAW_BROADCAST;
    const options = attemptOptions(attempt, [call], canStream);
    const send = (): Promise<OneReply> => {
      const id = callIds.take();
      return attempt.callOne(callRequest(body, call, id), id, options);
    };
    const startedMs = clock.nowMs();
    const fromMs = clock.monotonicMs();
    let reply = await send();
    // After a stray reply, a read is repeated once at the same node, on a new connection.
    if (reply.kind === 'fault' && reply.fault === 'stray' && options.mayRepeat)
      reply = await send();
    if (reply.kind === 'response' && isWrongHash(body, call, reply)) reply = attempt.fail('broken');
    if (reply.kind !== 'fault')
      attempt.upstream.times.note(call.method.name, clock.monotonicMs() - fromMs);
    noteTime(attempt.upstream, this.caller, [call], reply);
    countReply(options.figures, reply);
    const lack = reply.kind === 'response' ? reply.error?.lack : undefined;
    if (reply.kind === 'fault' || lack !== undefined) this.#recordTry(attempt, startedMs, reply);
    return { attempt, reply, figures: options.figures };
  }

  /**
   * Keeps the first usable response of two nodes, and cancels the other call. Without a usable
   * response, it keeps the better one of both.
   */
  async #sendTwice(
    attempt: NodeAttempt,
    { to, afterMs }: Hedge<Upstream>,
    call: Call,
  ): Promise<void> {
    const own = attempt.cancellable();
    const other = new NodeAttempt(this, to, false, attempt.isShared).cancellable();
    const first = this.#send(own, call);
    const kept = await new Promise<readonly Sent[]>((resolve) => {
      const cancel = this.settings.clock.after(afterMs, () => {
        if (!this.#group.hedges.take()) return;
        call.hedgedTo = to;
        attempt.upstream.figures.of(call.method.class).hedges.value += 1;
        const second = this.#send(other, call);
        void second.then((one) => {
          if (isUsable(one.reply)) resolve([one]);
        });
        void Promise.all([first, second]).then(resolve);
      });
      void first.then((one) => {
        cancel();
        if (call.hedgedTo === undefined || isUsable(one.reply)) resolve([one]);
      });
    });
    for (const sent of kept) this.#keep(sent, call);
    if (kept.length === 1) (kept[0]?.attempt === other ? own : other).cancel();
  }

  /** Sends a signed transaction to several nodes once; the first success counts. */
  #broadcast(nodes: readonly Upstream[], call: Call): Promise<void> {
    const sends = nodes.map(async (upstream, index) => {
      const attempt = new NodeAttempt(this, upstream, index === 0, false);
      const sent = await this.#send(attempt, call);
      if (call.response?.outcome === 'success' || call.result !== undefined) return true;
      this.#keep(sent, call);
      const { reply } = sent;
      if (reply.kind !== 'response' || reply.error === undefined) return reply.kind === 'response';
      await acceptKnown(attempt, this.settings, this.#parsed.body, call, reply.error);
      return call.result !== undefined;
    });
    return isAny(sends).then(() => undefined);
  }

  #keep({ attempt, reply, figures }: Sent, call: Call): void {
    if (reply.kind === 'response') noteResponse(this.#source(attempt), call, reply, figures);
    else this.#note(call, reply, figures);
  }

  #callParts(attempt: NodeAttempt, parts: readonly (readonly Call[])[]): Promise<unknown> {
    return Promise.all(
      parts.map((calls) =>
        calls.length === 1 ? this.#callEach(attempt, calls) : this.#callTogether(attempt, calls),
      ),
    );
  }

  async #callTogether(attempt: NodeAttempt, calls: readonly Call[]): Promise<void> {
    const ids = { firstId: this.settings.callIds.take(), count: calls.length };
    const body = batchRequest(this.#parsed.body, calls, ids.firstId);
    const options = attemptOptions(attempt, calls, false);
    const startedMs = this.settings.clock.nowMs();
    const reply = await attempt.callMany(body, ids, options);
    noteTime(attempt.upstream, this.caller, calls, reply);
    if (reply.kind === 'fault') {
      this.#recordTry(attempt, startedMs, reply);
      if (reply.fault === 'request-too-large') {
        // The node has not read any of the request.
        const middle = Math.ceil(calls.length / 2);
        await this.#callParts(attempt, [calls.slice(0, middle), calls.slice(middle)]);
        return;
      }
      for (const call of calls) {
        const figures = attempt.upstream.figures.of(call.method.class);
        countReply(figures, reply);
        this.#note(call, reply, figures);
      }
      return;
    }
    if (this.#parsed.isWrite) dropWrongHashes(attempt, this.#parsed.body, calls, reply.responses);
    let position = 0;
    let { figures } = options;
    for (const call of calls) {
      const response = reply.responses[position];
      position += 1;
      if (figures.class !== call.method.class)
        figures = attempt.upstream.figures.of(call.method.class);
      if (response?.outcome === 'success' && call.response === undefined && !call.blocks) {
        call.response = response;
        call.figures = figures;
        figures.success.value += 1;
      } else {
        countReply(figures, response ?? BROKEN);
        noteResponse(this.#source(attempt), call, response, figures);
      }
    }
    if (!reply.isIrregular) return;
    const missing = calls.filter(
      ({ response, method }, index) =>
        reply.responses[index] === undefined &&
        (response === undefined || response.error !== undefined) &&
        method.mayRepeat,
    );
    await this.#callEach(attempt, missing);
  }

  async #callEach(attempt: NodeAttempt, calls: readonly Call[]): Promise<void> {
    const queue = [...calls];
    const work = async (): Promise<void> => {
      for (let call = queue.shift(); call !== undefined; call = queue.shift())
        await this.#callOne(attempt, call);
    };
    await Promise.all(Array.from({ length: Math.min(EXPANDED_AT_ONCE, calls.length) }, work));
  }

  /** Records a fault, and an error that sends the call to the next node. */
  #recordTry(attempt: NodeAttempt, startedMs: number, reply: OneReply): void {
    const error = reply.kind === 'response' ? reply.error : undefined;
    this.#tries?.addTry({
      engine: attempt.upstream.settings.name,
      target: this.network.slug,
      startedMs,
      tookMs: this.settings.clock.nowMs() - startedMs,
      result: reply.kind === 'fault' ? reply.fault : `lacks-${error?.lack}`,
      detail: reply.kind === 'fault' && !reply.isSent ? 'The request was not sent' : '',
      words: error?.message ?? '',
    });
  }

  #source({ upstream }: NodeAttempt): Source {
    return { upstream, caller: this.caller, network: this.#group.head };
  }

  #note(call: Call, reply: AttemptFault | StreamResponse, figures: ClassFigures): void {
    // A stream replaces the error or null of a previous node.
    if (reply.kind === 'stream') call.response = undefined;
    if (call.response === undefined) call.figures = figures;
    if (reply.kind === 'stream') this.#stream = reply;
    // A rejection by a node takes precedence over faults of later nodes.
    else if (call.fault?.fault !== 'refused') call.fault = reply;
  }

  #finish(): RpcResponse {
    const { body, calls, isBatch } = this.#parsed;
    const { attempts, signal } = this;
    const stream = this.#stream;
    const retries = Math.max(0, attempts - 1);
    if (signal?.aborted === true && calls.some((call) => call.fault?.isAborted)) {
      stream?.rest.destroy();
      return { kind: 'abandoned', body: NO_BYTES, rest: undefined, credits: 0, retries };
    }
    let credits = 0;
    for (const call of calls) {
      const ofCall = creditsOf(call, stream);
      credits += ofCall;
      if (ofCall > 0) (call.figures ?? this.#countCached(call)).credits.value += ofCall;
    }
    // Every reply costs credits.
    if (credits === 0) throw this.#unanswered();
    const [only] = calls;
    const answered = { kind: 'answered', rest: undefined, credits, retries } as const;
    if (isBatch || only === undefined) return { ...answered, ...batchReply(body, calls) };
    if (stream === undefined) return { ...answered, body: oneReply(body, only) };
    return { ...answered, ...streamReply(callerId(body, only.span), stream) };
  }

  #countCached({ method, response }: Call): ClassFigures {
    const figures = this.#group.cacheFigures.of(method.class);
    if (response === undefined) figures.success.value += 1;
    else countReply(figures, response);
    return figures;
  }

  #unanswered(): Fault {
    const { calls } = this.#parsed;
    const large = calls.find(({ fault }) => fault?.fault === 'request-too-large');
    if (large === undefined) {
      const last = calls.find(({ fault }) => fault !== undefined)?.fault;
      return unansweredFault(last, this.#group.hasOpen());
    }
    const kind = this.#group.kindFor(large.method.node);
    const limitBytes = this.#group.requestLimitBytes(kind);
    // The limit of the node includes the ids of Farebox.
    return requestTooLarge(this.#parsed, limitBytes && limitBytes - calls.length * ADDED_ID_BYTES);
  }
}
