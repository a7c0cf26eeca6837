/** State of a run: its machines, the accounts of its callers, and the responses that people received. */
import { StripeDouble, type StripeEvent } from '../support/stripe-double.ts';
import type { SimulatedPostgres } from './database.ts';
import { EvmChain } from './evm-chain.ts';
import { EvmNode } from './evm-node.ts';
import type { FareboxMachine } from './farebox-machine.ts';
import { ModelServer } from './model-server.ts';
import type { CallerPlan, Plan } from './plan.ts';
import { Solana } from './solana.ts';
import { SolanaNode } from './solana-node.ts';
import { Machine, world } from './world.ts';

export const MODEL_PORTS = [9_001, 9_002];
const NODE_PORTS = [8_545, 8_546, 8_547];
const SOLANA_PORTS = [8_899, 8_900, 8_901];

/** A response that arrived whole, or did not. */
export interface Seen {
  readonly caller: string;
  readonly key: string | undefined;
  readonly status: number | undefined;
  readonly requestId: string | undefined;
  /** From the usage of the response and the prices of the model. */
  readonly expectedNano: bigint | undefined;
  /** True for an error of the server itself, not of a model server. */
  readonly isInternal?: boolean;
  /** True for a stream that ends with an error. */
  readonly isBroken?: boolean;
}

/** The response to a chat or an embedding. */
export interface ChatSeen extends Seen {
  readonly sentMs: number;
  readonly seenMs: number;
  readonly model: string;
  /** Requests of the minute that the response says are left. */
  readonly requestsLeft: number | undefined;
}

export interface CallerAccount extends CallerPlan {
  readonly accountId: string;
  readonly secret: string;
}

/** A moment for which a fault waits, because it shows more then. `to` precedes the address of a server. */
export type Moment =
  /** The operator has received a confirmation, or the card processor a new checkout. */
  | 'confirmation'
  /** A wallet cancels a payment. */
  | 'cancellation'
  | `request to ${string}`
  | `keyed request to ${string}`;

export class Town {
  readonly plan: Plan;
  /** The disks of the servers are in it. */
  readonly folder: string;
  /** Only with several servers. */
  readonly database: SimulatedPostgres | undefined;
  readonly fareboxes: FareboxMachine[] = [];
  readonly models = MODEL_PORTS.map((port) => new ModelServer(port));
  readonly chain = new EvmChain();
  readonly nodes = NODE_PORTS.map((port) => new EvmNode(this.chain, port));
  readonly solana = new Solana();
  readonly solanaNodes = SOLANA_PORTS.map((port) => new SolanaNode(this.solana, port));
  readonly stripeMachine = new Machine('card processor');
  stripe!: StripeDouble;
  /** Events of the card processor that wait for their delivery. */
  readonly events: StripeEvent[] = [];
  readonly accounts: CallerAccount[] = [];
  /** Addresses of wallets. */
  readonly wallets: string[] = [];
  readonly seen: Seen[] = [];
  /** Those of them that count in the minute of their model. */
  readonly chats: ChatSeen[] = [];
  /** The first parameters of the calls of each JSON-RPC request. */
  readonly nodeCalls = new Map<string, readonly unknown[]>();
  /** When callers and faults begin. */
  beginsMs = 0;
  /** Secret of the operator. */
  owner = '';
  /** Credits that were confirmed to the operator, by reference. */
  readonly credited = new Map<string, { accountId: string; amountNano: bigint }>();
  /** `true` once callers and people begin nothing new. */
  isOver = false;
  /** `true` once everything has ended. */
  isCalm = false;
  readonly #moments = new Map<Moment, PromiseWithResolvers<void>>();

  constructor(plan: Plan, folder: string, database?: SimulatedPostgres) {
    this.plan = plan;
    this.folder = folder;
    this.database = database;
  }

  /** URL of one of the servers, as behind a load balancer; if possible not `besides`. */
  url(besides?: string): string {
    const others = this.fareboxes.filter(({ url }) => url !== besides);
    return world().random.pick(others.length > 0 ? others : this.fareboxes).url;
  }

  happens(moment: Moment): void {
    this.#moments.get(moment)?.resolve();
    this.#moments.delete(moment);
  }

  /** Resolves when the moment happens next. */
  next(moment: Moment): Promise<void> {
    const next = this.#moments.get(moment) ?? Promise.withResolvers<void>();
    this.#moments.set(moment, next);
    return next.promise;
  }
}
