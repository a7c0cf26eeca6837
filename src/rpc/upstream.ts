/**
 * One node: its identity, health and size limits, and the share of each caller.
 *
 * Invariant: no caller data is sent to a node before its chain id is verified. A node of another
 * chain is disabled for a while and logged by name, never by URL.
 *
 * The fault limit is five faults in a row, or twenty in the last eighty exchanges. If several
 * callers saw them, the node is used last for a while. Its breaker opens only if one of the
 * server's own requests also failed, because callers may cause the faults that they see. It stays
 * open for two seconds at first and up to thirty while the node stays unusable; then a request of
 * the server closes or reopens it.
 */
import type { RpcSection } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { scanReply } from '../json/json-spans.ts';
import { CircuitBreaker } from '../net/circuit-breaker.ts';
import { type CallIds, whoseId } from './call-ids.ts';
import { Capabilities } from './capabilities.ts';
import { type Family, HEAD_METHOD, hexNumber, type Network, type Tag } from './catalogue.ts';
import { faultOfStatus, judgeItem, type ReplySource } from './classify.ts';
import type { NodeError, UpstreamFault } from './node-errors.ts';
import { ResponseTimes } from './hedges.ts';
import { ByteBudget, type NodeClient } from './node-client.ts';
import type { NodeFigures } from './node-figures.ts';
import { NodeShare } from './node-share.ts';

type Configured = RpcSection['networks'][string]['upstreams'][number];

export interface UpstreamSettings extends Omit<Configured, 'headers' | 'url'> {
  /** Used in logs and metrics instead of the URL. */
  readonly name: string;
  /** Concurrent calls; one caller may use at most as many as remain free. */
  readonly connections: number;
}

export interface UpstreamDependencies {
  readonly network: Network;
  readonly client: NodeClient;
  readonly callIds: CallIds;
  readonly clock: Clock;
  readonly log: Log;
  readonly figures: NodeFigures;
}

/** Caller id of the server's own requests. */
const OWN_CALLER = '';
const PROBE_TIMEOUT_MS = 10_000;
/** Blocks with thousands of transaction hashes. */
const PROBE_MAX_BYTES = 2_097_152;
/** How long a node is disabled after it reported the id of another chain. */
const DISABLED_MS = 600_000;
/** No node has a smaller limit; a 413 below it has another meaning. */
export const MIN_LIMIT_BYTES = 65_536;
/** Time for which a learned size limit applies; the operator of the node may raise it. */
const SIZE_KNOWN_MS = 600_000;
/** After failed requests of callers the server tests the node itself, at most once in this time. */
const CHECK_INTERVAL_MS = 1_000;

const WINDOW_EXCHANGES = 80;
const MAX_FAULTS_IN_WINDOW = 20;
const MAX_FAULTS_IN_A_ROW = 5;
/** Number of callers with failed requests from which the node is used last for all of them. */
const MIN_CALLERS = 3;
const BREAKER = { openMs: 2_000, maxOpenMs: 30_000 };
/** How long a node is used last after a fault of its quota, of callers, or of its account. */
const QUOTA_PAUSE_MS = 2_000;
const FAULT_PAUSE_MS = 10_000;
const AUTH_PAUSE_MS = 60_000;
/** A node counts as slow above this time and above this multiple of its mean latency. */
const MIN_NORMAL_MS = 1_000;
const NORMAL_LATENCIES = 4;
const LATENCY_ALPHA = 0.2;

interface QueryResult {
  readonly value?: unknown;
  readonly error?: NodeError;
  readonly fault?: UpstreamFault;
}

interface BlockHeader {
  readonly hash: string;
  readonly number: number;
  readonly timestampMs: number;
}

const IDENTITY_METHOD: Readonly<Record<Family, string>> = {
  evm: 'eth_chainId',
  starknet: 'starknet_chainId',
  solana: 'getGenesisHash',
};

export class Upstream {
  readonly settings: UpstreamSettings;
  readonly client: NodeClient;
  readonly source: ReplySource;
  readonly figures: NodeFigures;
  readonly share: NodeShare;
  readonly capabilities: Capabilities;
  readonly times = new ResponseTimes();
  isVerified = false;
  /** The newest block number reported by this node; `undefined` if it was not polled. */
  head: number | undefined;
  /** The monotonic time of that report. */
  headAtMs = -Infinity;
  /** Moving average; `undefined` before the first response. */
  latencyMs: number | undefined;
  readonly #parts: UpstreamDependencies;
  #disabledUntilMs = 0;
  #verifying: Promise<boolean> | undefined;
  #polling: Promise<void> | undefined;
  #nextCheckMs = 0;
  #refusedBytes = 0;
  #refusedBytesUntilMs = 0;
  readonly #breaker: CircuitBreaker;
  /** The callers with a fault among the last exchanges; `undefined` for a success. */
  readonly #window: (string | undefined)[] = Array.from({ length: WINDOW_EXCHANGES });
  #position = 0;
  #faults = 0;
  #faultsInARow = 0;
  #pausedUntilMs = 0;

  constructor(settings: UpstreamSettings, dependencies: UpstreamDependencies) {
    const { client, clock } = dependencies;
    this.settings = settings;
    this.client = client;
    this.source = { family: dependencies.network.family, secrets: client.secrets };
    this.figures = dependencies.figures;
    this.#parts = dependencies;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
    this.share = new NodeShare(settings.connections, settings.ratePerSecond, clock);
    this.capabilities = new Capabilities(clock);
  }

  /** Whether the node is usable now: it is on the right chain and its breaker is not open. */
  isOpen(): boolean {
    if (this.#disabledUntilMs > 0 && this.#parts.clock.monotonicMs() < this.#disabledUntilMs)
      return false;
    return this.#breaker.canAdmit;
  }

  /** Verifies the chain id once, before the first use. `false`: the node is not usable now. */
  async verify(): Promise<boolean> {
    if (this.isVerified) return true;
    this.#verifying ??= this.checkIdentity().finally(() => {
      this.#verifying = undefined;
    });
    return this.#verifying;
  }

  /** Calls the node once. Returns an error message, or `undefined` if the node is usable. */
  async probe(): Promise<string | undefined> {
    if (await this.checkIdentity()) return undefined;
    const { slug, family } = this.#parts.network;
    if (this.#disabledUntilMs > 0) return `Serves another chain than ${slug}: correct its url`;
    return `Returns no usable response to ${IDENTITY_METHOD[family]}: check url, key and node`;
  }

  /** The size limit learned from the node, in bytes; `undefined` if unknown. */
  get requestLimitBytes(): number | undefined {
    const isKnown =
      this.#refusedBytes > 0 && this.#parts.clock.monotonicMs() < this.#refusedBytesUntilMs;
    const { maxRequestBytes } = this.settings;
    if (!isKnown) return maxRequestBytes;
    return Math.min(maxRequestBytes ?? Infinity, this.#refusedBytes - 1);
  }

  /** Whether the node accepts requests of this size, as far as is known. */
  acceptsBytes(sizeBytes: number): boolean {
    return sizeBytes < MIN_LIMIT_BYTES || sizeBytes <= (this.requestLimitBytes ?? Infinity);
  }

  rejectsBytes(sizeBytes: number): boolean {
    return sizeBytes > (this.settings.maxRequestBytes ?? Infinity);
  }

  noteAccepted(sizeBytes: number): void {
    if (sizeBytes >= this.#refusedBytes) this.#refusedBytes = 0;
  }

  noteTooLarge(sizeBytes: number): void {
    const nowMs = this.#parts.clock.monotonicMs();
    const isNew = this.#refusedBytes === 0 || nowMs >= this.#refusedBytesUntilMs;
    if (isNew || sizeBytes < this.#refusedBytes) this.#refusedBytes = sizeBytes;
    this.#refusedBytesUntilMs = nowMs + SIZE_KNOWN_MS;
  }

  /** Whether its breaker has opened and no request of the server has closed it yet. */
  get isOut(): boolean {
    return this.#breaker.state !== 'closed';
  }

  get isPaused(): boolean {
    return this.#pausedUntilMs > 0 && this.#parts.clock.monotonicMs() < this.#pausedUntilMs;
  }

  /** Response time above which a caller that gives up counts as a fault of the node. */
  get normalMs(): number {
    return Math.max(MIN_NORMAL_MS, NORMAL_LATENCIES * (this.latencyMs ?? 0));
  }

  get faultShare(): number {
    return this.#faults / WINDOW_EXCHANGES;
  }

  noteResponse(latencyMs: number): void {
    if (this.isOut) this.#clearFaults();
    this.#keep(undefined);
    this.#faultsInARow = 0;
    this.latencyMs ??= latencyMs;
    this.latencyMs += LATENCY_ALPHA * (latencyMs - this.latencyMs);
  }

  noteFault(fault: UpstreamFault, caller: string): void {
    if (fault === 'refused' || fault === 'too-large' || fault === 'request-too-large') return;
    if (fault === 'stray') this.client.disableKeepAlive();
    // The node works, so it is only used last for a while.
    if (fault === 'quota') return this.#pause(QUOTA_PAUSE_MS);
    const isOwn = caller === OWN_CALLER;
    if (fault === 'auth' && isOwn) this.#pause(AUTH_PAUSE_MS);
    this.#keep(caller);
    this.#faultsInARow += 1;
    if (this.isOut) {
      // Exchanges that began before the breaker opened do not prolong it.
      if (isOwn) this.#breaker.open();
      return;
    }
    const witnesses = this.#witnesses();
    if (witnesses.size === 0) {
      if (fault === 'auth' && !isOwn) void this.#checkAfterFaults();
      return;
    }
    const { log, network } = this.#parts;
    const fields = { network: network.slug, upstream: this.settings.name, fault };
    if (witnesses.has(OWN_CALLER)) {
      this.#breaker.open();
      // After the pause a request of the server must verify the node again.
      this.isVerified = false;
      log.warn(fields, 'RPC upstream is disabled');
      return;
    }
    if (witnesses.size >= MIN_CALLERS && !this.isPaused) {
      this.#pause(FAULT_PAUSE_MS);
      log.warn(fields, 'RPC upstream is used last');
    }
    void this.#checkAfterFaults();
  }

  #pause(restMs: number): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, this.#parts.clock.monotonicMs() + restMs);
  }

  /** The callers of the last faults; empty below the fault limits. */
  #witnesses(): ReadonlySet<string> {
    let depth = this.#faults >= MAX_FAULTS_IN_WINDOW ? WINDOW_EXCHANGES : 0;
    if (this.#faultsInARow >= MAX_FAULTS_IN_A_ROW)
      depth = Math.min(WINDOW_EXCHANGES, this.#faultsInARow);
    const callers = new Set<string>();
    for (let back = 1; back <= depth; back += 1) {
      const caller = this.#window[(this.#position - back + WINDOW_EXCHANGES) % WINDOW_EXCHANGES];
      if (caller !== undefined) callers.add(caller);
    }
    return callers;
  }

  #keep(caller: string | undefined): void {
    if (this.#window[this.#position] !== undefined) this.#faults -= 1;
    if (caller !== undefined) this.#faults += 1;
    this.#window[this.#position] = caller;
    this.#position = (this.#position + 1) % WINDOW_EXCHANGES;
  }

  /** A request of the server succeeded, so failed requests of callers no longer count. */
  #clearFaults(): void {
    this.#breaker.close();
    this.#window.fill(undefined);
    this.#faults = 0;
    this.#faultsInARow = 0;
  }

  /**
   * Tests the node with a request of the server after requests of callers have failed. A failure
   * counts against the node, a success clears the faults.
   */
  async #checkAfterFaults(): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs < this.#nextCheckMs) return;
    this.#nextCheckMs = nowMs + CHECK_INTERVAL_MS;
    if (await this.checkIdentity()) this.#clearFaults();
  }

  /** Polls and stores the newest block number; never throws. */
  pollHead(): Promise<void> {
    this.#polling ??= this.#pollHead().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  async #pollHead(): Promise<void> {
    if (!(await this.verify())) return;
    const value = await this.#probe(HEAD_METHOD[this.#parts.network.family]);
    const head =
      typeof value === 'number' || typeof value === 'string' ? Number(value) : Number.NaN;
    if (!Number.isSafeInteger(head)) return;
    this.head = head;
    this.headAtMs = this.#parts.clock.monotonicMs();
  }

  /** A block of an EVM network by number or tag; `undefined` if the node does not return it. */
  async blockAt(block: number | Tag): Promise<BlockHeader | undefined> {
    const name = typeof block === 'number' ? hexNumber(block) : block;
    const { value } = await this.query('eth_getBlockByNumber', `["${name}",false]`);
    if (typeof value !== 'object' || value === null) return undefined;
    const hash: unknown = Reflect.get(value, 'hash');
    const number = Number(Reflect.get(value, 'number'));
    const timestampMs = Number(Reflect.get(value, 'timestamp')) * SECOND_MS;
    return typeof hash === 'string' ? { hash, number, timestampMs } : undefined;
  }

  async close(): Promise<void> {
    this.share.close();
    await this.client.close();
  }

  /** Requests the chain id; returns whether the node responds and is on the right chain. */
  async checkIdentity(): Promise<boolean> {
    const { network, clock, log } = this.#parts;
    const value = await this.#probe(IDENTITY_METHOD[network.family]);
    if (value === undefined) return false;
    this.isVerified = isSameChain(network, value);
    this.#disabledUntilMs = this.isVerified ? 0 : clock.monotonicMs() + DISABLED_MS;
    if (!this.isVerified) {
      const fields = { network: network.slug, upstream: this.settings.name };
      log.error(fields, 'RPC upstream is disabled: it serves another chain');
    }
    return this.isVerified;
  }

  /** The result of a request of the server without params; `undefined` after recording its fault. */
  async #probe(method: string): Promise<unknown> {
    const { value, fault } = await this.query(method, '[]');
    if (fault === undefined) return value;
    // A node that rejects the identity request is unusable.
    return this.noteFault(fault === 'refused' ? 'broken' : fault, OWN_CALLER);
  }

  /** Sends a request of the server: returns its result, or the error or the fault of the node. */
  async query(method: string, params: string): Promise<QueryResult> {
    const id = this.#parts.callIds.take();
    const reply = await this.client.post({
      body: Buffer.from(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`),
      timeoutMs: Math.min(PROBE_TIMEOUT_MS, this.settings.timeoutMs),
      maxBytes: PROBE_MAX_BYTES,
      canStream: false,
      mayRepeat: true,
      // Twice the limit, because a caller may use at most as much as it leaves free.
      budget: new ByteBudget(2 * PROBE_MAX_BYTES),
      caller: OWN_CALLER,
      signal: undefined,
    });
    if (!reply.ok) return { fault: 'transport' };
    const scan = scanReply(reply.body);
    const item = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
    if (item === undefined) return { fault: faultOfStatus(reply.status) };
    if (whoseId(reply.body, item, id) === 'other') return { fault: 'stray' };
    const verdict = judgeItem(reply.body, item, reply.status, this.source, true);
    if (typeof verdict === 'string') return { fault: verdict };
    if (verdict.error !== undefined)
      return { fault: faultOfStatus(reply.status), error: verdict.error };
    this.noteResponse(reply.tookMs);
    try {
      return { value: JSON.parse(reply.body.toString('utf8', item.resultStart, item.resultEnd)) };
    } catch {
      // The reply contains invalid JSON: the node is unusable now.
      return { fault: 'broken' };
    }
  }
}

function isSameChain(network: Network, value: unknown): boolean {
  if (network.family === 'solana') return value === network.chainId;
  if (typeof value !== 'string' && typeof value !== 'number') return false;
  try {
    return BigInt(value) === BigInt(network.chainId);
  } catch {
    return false; // not a number in any format: not this chain
  }
}
