/**
 * One node: its identity, its health, the sizes that it takes, and what of it each caller may take.
 *
 * Invariant: no caller's byte reaches a node whose chain id was not checked; a node of another
 * chain is refused for a while and said so in the log by its name, never by its address.
 *
 * Five faults in a row or twenty of the last eighty exchanges are too many. When several callers saw
 * them the node is asked last for a while; its breaker opens only when a question of our own is
 * among them, since callers may cause what they see. It stays open for two seconds at first and up
 * to thirty while the node stays dead; then a question of our own closes or reopens it.
 */
import type { RpcSection } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { scanReply } from '../json/json-spans.ts';
import { CircuitBreaker } from '../net/circuit-breaker.ts';
import { type CallIds, whoseId } from './call-ids.ts';
import type { Family, Network } from './catalogue.ts';
import { faultOfStatus, judgeItem, type UpstreamFault } from './classify.ts';
import { ByteBudget, type NodeClient } from './node-client.ts';
import { NodeShare } from './node-share.ts';
import { SlowMethods } from './slow-methods.ts';

type Configured = RpcSection['networks'][string]['upstreams'][number];

export interface UpstreamSettings extends Omit<Configured, 'headers' | 'url'> {
  /** Stands in logs and metrics in place of the address. */
  readonly name: string;
  /** Calls on their way at once; one caller has at most as many as it leaves free. */
  readonly connections: number;
}

export interface UpstreamDependencies {
  readonly network: Network;
  readonly client: NodeClient;
  readonly callIds: CallIds;
  readonly clock: Clock;
  readonly log: Log;
}

/** In place of a caller: a question of our own. */
const OWN_QUESTION = '';
const PROBE_TIMEOUT_MS = 10_000;
/** Replies to probes are tiny; a larger one is not an answer to them. */
const PROBE_MAX_BYTES = 65_536;
/** How long a node of a wrong chain stays refused before it is asked again. */
const REFUSED_MS = 600_000;
/** No node has a smaller limit; a 413 below it speaks of something else. */
export const MIN_LIMIT_BYTES = 65_536;
/** How long a size that a node refused stays known: its operator may raise the limit. */
const SIZE_KNOWN_MS = 600_000;
/** Between two questions of our own that ask whose fault it was. */
const SUSPICION_MS = 1_000;

const WINDOW_EXCHANGES = 80;
const MAX_FAULTS_IN_WINDOW = 20;
const MAX_FAULTS_IN_A_ROW = 5;
/** Callers that must have seen faults before the node is asked last for them. */
const MIN_CALLERS = 3;
const BREAKER = { openMs: 2_000, maxOpenMs: 30_000 };
/** How long a node with a problem of quota, callers or account is asked last. */
const QUOTA_REST_MS = 2_000;
const FAULT_REST_MS = 10_000;
const AUTH_REST_MS = 60_000;
/** A node takes this long at least, and this many times its mean latency, before it counts as slow. */
const MIN_NORMAL_MS = 1_000;
const NORMAL_LATENCIES = 4;
const LATENCY_ALPHA = 0.2;

const IDENTITY_METHOD: Readonly<Record<Family, string>> = {
  evm: 'eth_chainId',
  starknet: 'starknet_chainId',
  solana: 'getGenesisHash',
};
const HEAD_METHOD: Readonly<Record<Family, string>> = {
  evm: 'eth_blockNumber',
  starknet: 'starknet_blockNumber',
  solana: 'getSlot',
};

export class Upstream {
  readonly settings: UpstreamSettings;
  readonly client: NodeClient;
  readonly share: NodeShare;
  readonly slowMethods: SlowMethods;
  readonly #network: Network;
  readonly #callIds: CallIds;
  readonly #clock: Clock;
  readonly #log: Log;
  #isVerified = false;
  #refusedUntilMs = 0;
  #verifying: Promise<boolean> | undefined;
  #suspectAgainMs = 0;
  #refusedBytes = 0;
  #refusedBytesUntilMs = 0;
  #head: number | undefined;
  readonly #breaker: CircuitBreaker;
  /** The caller that saw the fault of each of the last exchanges; undefined for a success. */
  readonly #window: (string | undefined)[] = Array.from({ length: WINDOW_EXCHANGES });
  #position = 0;
  #faults = 0;
  #faultsInARow = 0;
  #restUntilMs = 0;
  #latencyMs: number | undefined;

  constructor(settings: UpstreamSettings, dependencies: UpstreamDependencies) {
    const { clock } = dependencies;
    this.settings = settings;
    this.client = dependencies.client;
    this.#network = dependencies.network;
    this.#callIds = dependencies.callIds;
    this.#clock = clock;
    this.#log = dependencies.log;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
    this.share = new NodeShare(settings.connections, settings.ratePerSecond, clock);
    this.slowMethods = new SlowMethods(clock);
  }

  /** Whether it may be asked now: neither of a wrong chain nor cut off by its breaker. */
  isOpen(): boolean {
    if (this.#refusedUntilMs > 0 && this.#clock.monotonicMs() < this.#refusedUntilMs) return false;
    return this.#breaker.canAdmit;
  }

  get isVerified(): boolean {
    return this.#isVerified;
  }

  /** Number of the newest block that this node has told, if it was asked. */
  get head(): number | undefined {
    return this.#head;
  }

  /** Checks the chain id once, before the first use. False: this node cannot be used now. */
  async verify(): Promise<boolean> {
    if (this.#isVerified) return true;
    this.#verifying ??= this.#checkIdentity().finally(() => {
      this.#verifying = undefined;
    });
    return this.#verifying;
  }

  /** Calls the node once. Returns a sentence about what is wrong, or `undefined` if it can be used. */
  async probe(): Promise<string | undefined> {
    if (await this.#checkIdentity()) return undefined;
    const { slug } = this.#network;
    if (this.#refusedUntilMs > 0) return `Serves another chain than ${slug}: correct its url`;
    return `Gives no usable response to ${IDENTITY_METHOD[this.#network.family]}: check url, key and node`;
  }

  /** Asks who it is, whether or not that is known: it answers now, and is of the right chain. */
  isResponding(): Promise<boolean> {
    return this.#checkIdentity();
  }

  /** Largest request that it is known to take, in bytes; undefined when nothing is known. */
  get requestLimitBytes(): number | undefined {
    const isKnown = this.#refusedBytes > 0 && this.#clock.monotonicMs() < this.#refusedBytesUntilMs;
    const { maxRequestBytes } = this.settings;
    if (!isKnown) return maxRequestBytes;
    return Math.min(maxRequestBytes ?? Infinity, this.#refusedBytes - 1);
  }

  /** Whether a request of this size may go here; false also where one like it was refused. */
  takesBytes(sizeBytes: number): boolean {
    return sizeBytes < MIN_LIMIT_BYTES || sizeBytes <= (this.requestLimitBytes ?? Infinity);
  }

  refusesBytes(sizeBytes: number): boolean {
    return sizeBytes > (this.settings.maxRequestBytes ?? Infinity);
  }

  noteTaken(sizeBytes: number): void {
    if (sizeBytes >= this.#refusedBytes) this.#refusedBytes = 0;
  }

  noteTooLarge(sizeBytes: number): void {
    const nowMs = this.#clock.monotonicMs();
    const isNew = this.#refusedBytes === 0 || nowMs >= this.#refusedBytesUntilMs;
    if (isNew || sizeBytes < this.#refusedBytes) this.#refusedBytes = sizeBytes;
    this.#refusedBytesUntilMs = nowMs + SIZE_KNOWN_MS;
  }

  /** Whether its breaker has opened and no question of our own has closed it yet. */
  get isOut(): boolean {
    return this.#breaker.state !== 'closed';
  }

  get isResting(): boolean {
    return this.#restUntilMs > 0 && this.#clock.monotonicMs() < this.#restUntilMs;
  }

  get latencyMs(): number | undefined {
    return this.#latencyMs;
  }

  /** How long a response may take before a caller that gives up speaks against the node. */
  get normalMs(): number {
    return Math.max(MIN_NORMAL_MS, NORMAL_LATENCIES * (this.#latencyMs ?? 0));
  }

  get faultShare(): number {
    return this.#faults / WINDOW_EXCHANGES;
  }

  noteResponse(latencyMs: number): void {
    if (this.isOut) this.#forgive();
    this.#keep(undefined);
    this.#faultsInARow = 0;
    this.#latencyMs ??= latencyMs;
    this.#latencyMs += LATENCY_ALPHA * (latencyMs - this.#latencyMs);
  }

  noteFault(fault: UpstreamFault, caller: string): void {
    if (fault === 'refused' || fault === 'too-large' || fault === 'request-too-large') return;
    if (fault === 'stray') this.client.loseKeepAlive();
    // The node works, so it is only moved to the end of the order for a while.
    if (fault === 'quota') return this.#rest(QUOTA_REST_MS);
    const isOwn = caller === OWN_QUESTION;
    if (fault === 'auth' && isOwn) this.#rest(AUTH_REST_MS);
    this.#keep(caller);
    this.#faultsInARow += 1;
    if (this.isOut) {
      // Exchanges that began before the opening do not lengthen it.
      if (isOwn) this.#breaker.open();
      return;
    }
    const witnesses = this.#witnesses();
    if (witnesses.size === 0) {
      if (fault === 'auth' && !isOwn) void this.#askWhose();
      return;
    }
    const told = { network: this.#network.slug, upstream: this.settings.name, fault };
    if (witnesses.has(OWN_QUESTION)) {
      this.#breaker.open();
      // It comes back as it came: after a question of our own.
      this.#isVerified = false;
      this.#log.warn(told, 'RPC upstream taken out');
      return;
    }
    if (witnesses.size >= MIN_CALLERS && !this.isResting) {
      this.#rest(FAULT_REST_MS);
      this.#log.warn(told, 'RPC upstream asked last');
    }
    void this.#askWhose();
  }

  #rest(restMs: number): void {
    this.#restUntilMs = Math.max(this.#restUntilMs, this.#clock.monotonicMs() + restMs);
  }

  /** The callers that saw the last faults; empty below the limits. */
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

  /** The node has answered a question of our own: what one caller saw was its own doing. */
  #forgive(): void {
    this.#breaker.close();
    this.#window.fill(undefined);
    this.#faults = 0;
    this.#faultsInARow = 0;
  }

  /** After faults that callers saw: a question of our own fails too, or they are forgotten. */
  async #askWhose(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#suspectAgainMs) return;
    this.#suspectAgainMs = nowMs + SUSPICION_MS;
    if (await this.#checkIdentity()) this.#forgive();
  }

  /** Asks for the number of the newest block and keeps it; never throws. */
  async pollHead(): Promise<void> {
    const value = await this.#probe(HEAD_METHOD[this.#network.family]);
    const head =
      typeof value === 'number' || typeof value === 'string' ? Number(value) : Number.NaN;
    if (Number.isSafeInteger(head)) this.#head = head;
  }

  async close(): Promise<void> {
    this.share.close();
    await this.client.close();
  }

  async #checkIdentity(): Promise<boolean> {
    const value = await this.#probe(IDENTITY_METHOD[this.#network.family]);
    if (value === undefined) return false;
    this.#isVerified = isSameChain(this.#network, value);
    this.#refusedUntilMs = this.#isVerified ? 0 : this.#clock.monotonicMs() + REFUSED_MS;
    if (!this.#isVerified) {
      this.#log.error(
        { network: this.#network.slug, upstream: this.settings.name },
        'RPC upstream refused: it serves another chain',
      );
    }
    return this.#isVerified;
  }

  /** The result of a question of our own, or undefined after noting the fault. */
  async #probe(method: string): Promise<unknown> {
    const id = this.#callIds.take();
    const reply = await this.client.post({
      body: Buffer.from(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":[]}`),
      timeoutMs: Math.min(PROBE_TIMEOUT_MS, this.settings.timeoutMs),
      maxBytes: PROBE_MAX_BYTES,
      canStream: false,
      mayRepeat: true,
      budget: new ByteBudget(PROBE_MAX_BYTES),
      caller: OWN_QUESTION,
      signal: undefined,
    });
    if (!reply.ok) return this.noteFault('transport', OWN_QUESTION);
    const scan = scanReply(reply.body);
    const item = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
    const { family } = this.#network;
    const isStray = item !== undefined && whoseId(reply.body, item, id) === 'other';
    const verdict = isStray
      ? 'stray'
      : item && judgeItem(reply.body, item, reply.status, family, true);
    if (item === undefined || typeof verdict === 'string' || verdict?.outcome !== 'success') {
      const fault = typeof verdict === 'string' ? verdict : faultOfStatus(reply.status);
      // A node that refuses to say who it is is of no use.
      return this.noteFault(fault === 'refused' ? 'broken' : fault, OWN_QUESTION);
    }
    this.noteResponse(reply.tookMs);
    try {
      return JSON.parse(reply.body.toString('utf8', item.resultStart, item.resultEnd));
    } catch {
      // An answer that is not JSON inside: the node is simply not usable now.
      return this.noteFault('broken', OWN_QUESTION);
    }
  }
}

function isSameChain(network: Network, value: unknown): boolean {
  if (network.family === 'solana') return value === network.chainId;
  if (typeof value !== 'string' && typeof value !== 'number') return false;
  try {
    return BigInt(value) === BigInt(network.chainId);
  } catch {
    return false; // not a number in any spelling: not this chain
  }
}
