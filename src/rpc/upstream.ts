/**
 * One node: its pool, its identity, its health, and what of it each caller may take.
 *
 * Invariant: no caller's byte reaches a node whose chain id was not checked; a node of another
 * chain is refused for a while and said so in the log by its name, never by its address.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { scanReply } from '../json/json-spans.ts';
import type { Family, Network, NodeKind } from './catalogue.ts';
import { faultOfStatus, judgeItem } from './classify.ts';
import type { UpstreamFault } from './classify.ts';
import { NodeShare } from './node-share.ts';
import { OWN_QUESTION, UpstreamHealth } from './upstream-health.ts';
import { ByteBudget, TransportError } from './transport.ts';
import type { PostOptions, PostReply, RpcTransport } from './transport.ts';

export interface UpstreamSettings {
  /** Stands in logs and metrics in place of the address. */
  readonly name: string;
  readonly kind: NodeKind;
  readonly weight: number;
  /** Most items in one batch to this node; 1 sends every call alone. */
  readonly maxBatch: number;
  /** Calls per second, items of a batch counted; 0 is unlimited. */
  readonly ratePerSecond: number;
  readonly timeoutMs: number;
  /** Calls on their way at once; one caller has at most as many as it leaves free. */
  readonly connections: number;
  /** Largest request that it takes; 0 is unknown, and then learnt from its refusals. */
  readonly maxRequestBytes: number;
}

export interface UpstreamDependencies {
  readonly network: Network;
  readonly transport: RpcTransport;
  readonly clock: Clock;
  readonly log: Log;
}

/** Longest wait for the answer to an identity or head question. */
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

type Identity = 'unknown' | 'verified' | 'refused';

export class Upstream {
  readonly settings: UpstreamSettings;
  readonly health: UpstreamHealth;
  readonly share: NodeShare;
  readonly #network: Network;
  readonly #transport: RpcTransport;
  readonly #clock: Clock;
  readonly #log: Log;
  #identity: Identity = 'unknown';
  #refusedUntilMs = 0;
  #verifying: Promise<boolean> | undefined;
  #suspectAgainMs = 0;
  #refusedBytes = 0;
  #refusedBytesUntilMs = 0;

  constructor(settings: UpstreamSettings, dependencies: UpstreamDependencies) {
    this.settings = settings;
    this.#network = dependencies.network;
    this.#transport = dependencies.transport;
    this.#clock = dependencies.clock;
    this.#log = dependencies.log;
    this.health = new UpstreamHealth(dependencies.clock);
    this.share = new NodeShare(settings.connections, settings.ratePerSecond, dependencies.clock);
  }

  /** Whether it may be asked now: neither of a wrong chain nor cut off by its breaker. */
  isOpen(): boolean {
    if (this.#identity === 'refused' && this.#clock.monotonicMs() < this.#refusedUntilMs)
      return false;
    return this.health.isAdmitting();
  }

  get isVerified(): boolean {
    return this.#identity === 'verified';
  }

  /** Checks the chain id once, before the first use. False: this node cannot be used now. */
  async verify(): Promise<boolean> {
    if (this.#identity === 'verified') return true;
    this.#verifying ??= this.#checkIdentity().finally(() => {
      this.#verifying = undefined;
    });
    return this.#verifying;
  }

  /** Largest request that it is known to take, in bytes; undefined when nothing is known. */
  get requestLimitBytes(): number | undefined {
    const isKnown = this.#refusedBytes > 0 && this.#clock.monotonicMs() < this.#refusedBytesUntilMs;
    const set = this.settings.maxRequestBytes;
    if (!isKnown) return set === 0 ? undefined : set;
    return set === 0 ? this.#refusedBytes - 1 : Math.min(set, this.#refusedBytes - 1);
  }

  /** Whether a request of this size may go here; false also where one like it was refused. */
  takesBytes(sizeBytes: number): boolean {
    return sizeBytes < MIN_LIMIT_BYTES || sizeBytes <= (this.requestLimitBytes ?? Infinity);
  }

  /** Whether the operator says that it takes none of this size. */
  refusesBytes(sizeBytes: number): boolean {
    const { maxRequestBytes } = this.settings;
    return maxRequestBytes > 0 && sizeBytes > maxRequestBytes;
  }

  /** Keeps that the node has read a request of this size. */
  noteTaken(sizeBytes: number): void {
    if (sizeBytes >= this.#refusedBytes) this.#refusedBytes = 0;
  }

  /** Keeps that a request of this size was refused. */
  noteTooLarge(sizeBytes: number): void {
    const nowMs = this.#clock.monotonicMs();
    const isNew = this.#refusedBytes === 0 || nowMs >= this.#refusedBytesUntilMs;
    if (isNew || sizeBytes < this.#refusedBytes) this.#refusedBytes = sizeBytes;
    this.#refusedBytesUntilMs = nowMs + SIZE_KNOWN_MS;
  }

  post(body: Buffer, options: PostOptions): Promise<PostReply> {
    return this.#transport.post(body, options);
  }

  /** Keeps what a finished exchange says about the node. */
  noteAnswer(startedMs: number): void {
    this.health.noteSuccess(this.#clock.monotonicMs() - startedMs);
  }

  /** Keeps a fault that `caller` saw. */
  noteFault(fault: UpstreamFault, caller: string): void {
    const effect = this.health.noteFault(fault, caller);
    const told = { network: this.#network.slug, upstream: this.settings.name, fault };
    if (effect === 'suspect' || effect === 'rested') void this.#askWhose();
    if (effect === 'rested') this.#log.warn(told, 'RPC upstream asked last');
    if (effect !== 'opened') return;
    // It comes back as it came: after a question of our own.
    if (this.#identity === 'verified') this.#identity = 'unknown';
    this.#log.warn(told, 'RPC upstream taken out');
  }

  /** After faults that callers saw: a question of our own fails too, or they are forgotten. */
  async #askWhose(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#suspectAgainMs) return;
    this.#suspectAgainMs = nowMs + SUSPICION_MS;
    if (await this.#checkIdentity()) this.health.forgive();
  }

  /** Asks for the number of the newest block and keeps it; never throws. */
  async pollHead(): Promise<void> {
    const value = await this.#probe(HEAD_METHOD[this.#network.family]);
    const head =
      typeof value === 'number' || typeof value === 'string' ? Number(value) : Number.NaN;
    if (Number.isSafeInteger(head)) this.health.noteHead(head);
  }

  async close(): Promise<void> {
    this.share.close();
    await this.#transport.close();
  }

  async #checkIdentity(): Promise<boolean> {
    const value = await this.#probe(IDENTITY_METHOD[this.#network.family]);
    if (value === undefined) return false;
    if (isSameChain(this.#network, value)) {
      this.#identity = 'verified';
      return true;
    }
    this.#identity = 'refused';
    this.#refusedUntilMs = this.#clock.monotonicMs() + REFUSED_MS;
    this.#log.error(
      { network: this.#network.slug, upstream: this.settings.name },
      'RPC upstream refused: it serves another chain',
    );
    return false;
  }

  /** The result of a question of our own, or undefined after noting the fault. */
  async #probe(method: string): Promise<unknown> {
    const startedMs = this.#clock.monotonicMs();
    const body = Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"${method}","params":[]}`);
    try {
      const reply = await this.#transport.post(body, {
        timeoutMs: Math.min(PROBE_TIMEOUT_MS, this.settings.timeoutMs),
        headBytes: PROBE_MAX_BYTES,
        maxBytes: PROBE_MAX_BYTES,
        canStream: false,
        mayRepeat: true,
        budget: new ByteBudget(PROBE_MAX_BYTES),
        caller: OWN_QUESTION,
      });
      const scan = scanReply(reply.body);
      const item = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
      const verdict = item && judgeItem(reply.body, item, reply.status, this.#network.family);
      if (item === undefined || verdict?.kind !== 'result') {
        const isTold = verdict?.kind === 'fault';
        const fault = isTold ? verdict.fault : faultOfStatus(reply.status);
        // A node that refuses to say who it is is of no use.
        this.noteFault(fault === 'refused' ? 'broken' : fault, OWN_QUESTION);
        return undefined;
      }
      this.noteAnswer(startedMs);
      return JSON.parse(reply.body.toString('utf8', item.resultStart, item.resultEnd));
    } catch (error) {
      // A node that cannot be asked, or whose answer is not JSON inside, is simply not usable now.
      this.noteFault(error instanceof TransportError ? 'transport' : 'broken', OWN_QUESTION);
      return undefined;
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
