/** One run: a server, its model servers, a card processor, an operator and callers, under faults. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Stores, welcomeOwner } from '../../src/server/stores.ts';
import type { Config } from '../../src/config/config.ts';
import { usdToNano } from '../../src/core/money.ts';
import { StoreUnavailable } from '../../src/db/db.ts';
import { StripeDouble } from '../support/stripe-double.ts';
import { runBatches } from './batch-callers.ts';
import {
  BUDGET,
  CREDIT_USD,
  EMBEDDING_MODEL,
  LIMIT_USD,
  LITTLE_CREDIT_USD,
  MODEL,
  REQUESTS_PER_MINUTE,
  runCaller,
} from './callers.ts';
import { MEDIA, closeDatabases } from './disk.ts';
import { PAY_TO, REFUND_KEY } from './evm-chain.ts';
import { FareboxMachine } from './farebox-machine.ts';
import { booksAreRight, minutesHold, nothingRuns, runIsRight } from './oracles.ts';
import { operate, payByCard } from './people.ts';
import { faultType } from './plan.ts';
import { callNodes } from './rpc-callers.ts';
import { SOLANA_KEYS } from './solana.ts';
import { strike } from './strikes.ts';
import { MODEL_PORTS, Town } from './town.ts';
import { VIDEO_MODEL, VIDEO_USD, makeVideos } from './video-callers.ts';
import { evmWallet, payByWallet, solanaWallet } from './wallets.ts';
import { FAIR, Machine, world } from './world.ts';

const FAREBOX_PORT = 3_000;
/** Time after the last fault in which everything must end, and in which a late effect would show. */
const MAX_CALM_MS = 11 * 60_000;
const MIN_CALM_MS = 60_000;
const NEW_CHECKOUT = 'POST /v1/checkout/sessions';
/** Pays the gas of settlements. */
const GAS_KEY = `0x${'22'.repeat(32)}`;
const LOOK_EVERY_MS = 30_000;
/** Both are shorter than many pauses of the plan. */
const STALLED_MS = 8_000;
const DEAD_AFTER_SECONDS = 6;

const YAML = ({ stripe, nodes, solana, solanaNodes, database }: Town): string => `
service: { publicUrl: http://127.0.0.1:${FAREBOX_PORT} }
discovery: { enabled: false }
embedded: { enabled: false }
engines:
${MODEL_PORTS.map((port, at) => `  gpu${at + 1}: { url: "http://127.0.0.1:${port}/v1", protocol: openai, idleTimeoutMs: ${STALLED_MS} }`).join('\n')}
models:
  - id: ${MODEL}
    type: text
    context: 8192
    maxCompletionTokens: 512
    price: { input: 1, output: 2 }
    replicas: [${MODEL_PORTS.map((_, at) => `{ engine: gpu${at + 1} }`).join(', ')}]
  - id: ${EMBEDDING_MODEL}
    type: embedding
    embedding: { dimensions: 2 }
    price: { input: 1 }
    replicas: [${MODEL_PORTS.map((_, at) => `{ engine: gpu${at + 1} }`).join(', ')}]
  - id: ${VIDEO_MODEL}
    type: video
    replicas: [${MODEL_PORTS.map((_, at) => `{ engine: gpu${at + 1} }`).join(', ')}]
    video: { task: text-to-video, durations: [1s], pricing: { kind: generation, perGeneration: ${VIDEO_USD} } }
limits:
  starterCreditUsd: 100
  minimumCreditUsd: 0
  guard: { failures: 1000000 }
  plans: { paid: { text: { XS: &wide { requestsPerMinute: 1000000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } }
video: { keepHours: 100, maxJobHours: 100 }
rpc: { networks: { base-mainnet: { upstreams: ${JSON.stringify(nodes.map(({ url }) => ({ url })))} } } }
payments:
  ${stripe.yaml()}
  base: { payTo: "${PAY_TO}", rpcUrl: ${JSON.stringify(nodes.map(({ url }) => url))}, gasKey: "${GAS_KEY}", refundKey: "${REFUND_KEY}", confirmations: [{ fromUsd: 0, wait: 1 }, { fromUsd: 8, wait: 4 }] }
  solana: { payTo: "${solana.payTo}", rpcUrl: ${JSON.stringify(solanaNodes.map(({ url }) => url))}, feePayerKey: "${SOLANA_KEYS.feePayer}", refundKey: "${SOLANA_KEYS.refunds}", confirmations: [{ fromUsd: 0, wait: confirmed }, { fromUsd: 8, wait: finalized }] }
${database === undefined ? '' : `database: ${database.url}\ncluster: { connections: 4, deadAfterSeconds: ${DEAD_AFTER_SECONDS} }\n`}`;

export class Run extends Town {
  /** Throws the first defect. */
  async run(): Promise<void> {
    await this.database?.enter();
    let isDone = false;
    try {
      new Machine('director').run(() => {
        this.#direct().then(
          () => (isDone = true),
          (error: Error) => world().fail(error),
        );
      });
      await world().run(() => isDone);
    } finally {
      closeDatabases();
      rmSync(this.folder, { recursive: true, force: true });
    }
  }

  async #direct(): Promise<void> {
    const stripe = await this.stripeMachine.run(() => StripeDouble.start());
    this.stripe = stripe;
    stripe.onEvent = (event) => this.events.push(event);
    stripe.fate = (request) => {
      // The first effect outside of the server.
      if (request === NEW_CHECKOUT) this.happens('confirmation');
      return 'pass';
    };
    for (const one of [...this.models, this.chain, ...this.nodes, ...this.solanaNodes]) one.start();
    await this.solana.start();
    mkdirSync(join(this.folder, MEDIA), { recursive: true });
    for (let at = 0; at < this.plan.processes; at += 1) {
      const farebox = new FareboxMachine({
        name: this.database === undefined ? 'farebox' : `farebox ${'abcdefgh'[at]!}`,
        folder: this.folder,
        port: FAREBOX_PORT + at,
        yaml: YAML(this),
        sharesMedia: this.database !== undefined,
      });
      this.fareboxes.push(farebox);
      await farebox.start();
    }
    const { app, machine } = this.fareboxes[0]!.running;
    await machine.run(async () => {
      const limits = { starterCreditUsd: '100' };
      const config = { limits, listen: { host: '127.0.0.1' } } as unknown as Config; // its only members
      this.owner = (await welcomeOwner(app.stores, config))?.secret ?? '';
      await this.#openAccounts(app.stores);
    });
    this.beginsMs = world().nowMs;
    const callers = this.accounts.map((account) =>
      new Machine(account.name).run(() => runCaller(this, account)),
    );
    const wallets = Array.from({ length: this.plan.wallets }, (_, at) => {
      const name = `wallet ${at + 1}`;
      const wallet = at % 3 === 2 ? solanaWallet : evmWallet;
      return new Machine(name).run(async () => payByWallet(this, name, await wallet(this)));
    });
    const others = [
      operate(this),
      payByCard(this),
      runBatches(this),
      callNodes(this),
      ...['film', 'clip'].map((name) => makeVideos(this, name)),
      this.#inspector(),
      ...wallets,
    ];
    // Reports a defect at once.
    for (const other of others) other.catch((error: Error) => world().fail(error));
    await this.#strikes();
    this.isOver = true;
    await Promise.all(callers);
    await this.#calmDown(MIN_CALM_MS);
    this.isCalm = true;
    await Promise.all(others);
    // A refund of the last of them can lead to an automatic charge.
    await this.#calmDown(0);
    minutesHold(this);
    this.#nothingRuns();
    await this.#verify();
    await this.#verify();
  }

  /** Waits until everything has ended, but not longer than it may take. */
  async #calmDown(minMs: number): Promise<void> {
    const untilMs = world().nowMs + MAX_CALM_MS;
    await world().sleep(minMs);
    while (world().nowMs < untilMs && !(await this.#hasEnded())) await world().sleep(LOOK_EVERY_MS);
  }

  async #hasEnded(): Promise<boolean> {
    try {
      this.#nothingRuns();
      const { app, machine } = this.fareboxes[0]!.running;
      await machine.run(() => runIsRight(app, this, this.database !== undefined));
      return true;
    } catch {
      // Checked again, and at the end by `#verify`.
      return false;
    }
  }

  #nothingRuns(): void {
    for (const farebox of this.fareboxes) nothingRuns(farebox.running.app);
  }

  async #openAccounts({ identity, ledger, store }: Stores): Promise<void> {
    for (const plan of this.plan.callers) {
      const { kind, name: description } = plan;
      const { id: accountId } = await identity.createAccount(description, 'paid');
      const hasLimit = kind === 'capped' || kind === 'budgeted';
      const limit = {
        usdLimitNano: hasLimit ? usdToNano(LIMIT_USD[kind]) : undefined,
        diemLimitNano: undefined,
      };
      const period = kind === 'capped' ? 'LIFETIME' : 'EPOCH';
      const { key, secret } = await identity.createKey({
        accountId,
        // Settings of a card need an ADMIN key.
        kind: kind === 'payer' ? 'ADMIN' : 'INFERENCE',
        description,
        expiresMs: undefined,
        limitPeriod: period,
        modelPrivacy: 'ALL',
        models: undefined,
        limits: kind === 'limited' ? { requestsPerMinute: REQUESTS_PER_MINUTE } : {},
        ...limit,
      });
      await store.transaction(async (tx) => {
        const amountNano = usdToNano(LITTLE_CREDIT_USD[kind] ?? CREDIT_USD);
        const credit = {
          accountId,
          amountNano,
          from: 'house:operator-credit',
          kind: 'CREDIT',
        } as const;
        await ledger.creditIn(tx, { ...credit, id: `first-${accountId}` });
        const { usdLimitNano } = limit;
        if (usdLimitNano === undefined) return;
        await ledger.setCap(tx, { accountId, period, id: key.id, ...limit });
        if (kind === 'budgeted')
          await identity.createBudget({ accountId, period, usdLimitNano, ...BUDGET }, tx);
      });
      this.accounts.push({ ...plan, accountId, secret });
    }
  }

  /** Faults of the plan, in their order; several can be in force. */
  async #strikes(): Promise<void> {
    const startedMs = world().nowMs;
    const lasting: Promise<void>[] = [];
    for (const fault of this.plan.faults) {
      await world().sleep(Math.max(0, startedMs + fault.atMs - world().nowMs));
      world().note(`fault: ${fault.kind} for ${fault.forMs} ms`);
      const struck = strike(this, fault);
      // A machine that is down cannot fail again.
      if (faultType(fault.kind).isDown) await struck;
      else lasting.push(struck);
    }
    await world().sleep(Math.max(0, startedMs + this.plan.durationMs - world().nowMs));
    await Promise.all(lasting);
    Object.assign(world().weather, FAIR);
  }

  /** Checks the books during the run. */
  async #inspector(): Promise<void> {
    while (!this.isCalm) {
      await world().sleep(LOOK_EVERY_MS);
      const { app, machine } = world().random.pick(this.fareboxes);
      if (app === undefined || machine === undefined) continue;
      if (machine.pausedUntilMs > world().nowMs) continue;
      const looked = machine.run(() => booksAreRight(app, this));
      await Promise.race([looked, machine.died]).catch((error: unknown) => {
        // A look that the database could not serve proves nothing.
        if (!(error instanceof StoreUnavailable)) throw error;
      });
    }
  }

  /** Checks the records of the run, and stops the servers. */
  async #verify(): Promise<void> {
    // The leases of processes end with them.
    const [first, ...others] = this.fareboxes;
    for (const farebox of others) await farebox.stop();
    if (others.length > 0) await first!.stop();
    await first!.keepRunning();
    const { app, machine } = first!.running;
    await machine.run(() => runIsRight(app, this));
    await first!.stop();
  }
}
