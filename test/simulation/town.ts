/** One run: a server, its model servers, a card processor, an operator and callers, under faults. */
import { mkdtempSync, rmSync } from 'node:fs';
import { welcomeOwner } from '../../src/server/stores.ts';
import type { Config } from '../../src/config/config.ts';
import { usdToNano } from '../../src/core/money.ts';
import { StripeDouble, type StripeEvent } from '../support/stripe-double.ts';
import { CAP_USD, CREDIT_USD, Caller, type CallerAccount, MODEL } from './callers.ts';
import { resetDisk } from './disk.ts';
import { FareboxMachine } from './farebox-machine.ts';
import { send } from './http-client.ts';
import { ModelServer } from './model-server.ts';
import { resetNetwork } from './network.ts';
import { type Witness, booksAreRight, runIsRight } from './oracles.ts';
import type { Fault, Plan } from './plan.ts';
import { type Machine, world } from './world.ts';

const FAREBOX_PORT = 3_000;
const MODEL_PORTS = [9_001, 9_002];
/** Time after the last fault until everything must have ended. */
const CALM_MS = 11 * 60_000;
const LOOK_EVERY_MS = 30_000;
const PATIENCE_MS = 60_000;
const HOUR_MS = 3_600_000;

const YAML = (stripe: string): string => `
service: { publicUrl: http://127.0.0.1:${FAREBOX_PORT} }
discovery: { enabled: false }
embedded: { enabled: false }
engines:
${MODEL_PORTS.map((port, at) => `  gpu${at + 1}: { url: "http://127.0.0.1:${port}/v1", protocol: openai }`).join('\n')}
models:
  - id: ${MODEL}
    type: text
    context: 8192
    maxCompletionTokens: 64
    price: { input: 1, output: 2 }
    replicas: [${MODEL_PORTS.map((_, at) => `{ engine: gpu${at + 1} }`).join(', ')}]
limits:
  starterCreditUsd: 100
  minimumCreditUsd: 0
  guard: { failures: 1000000 }
  plans: { paid: { text: { XS: &wide { requestsPerMinute: 1000000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } }
payments: { ${stripe} }
`;

export interface RunResult {
  readonly traceHash: string;
  readonly steps: number;
  readonly requests: number;
  readonly served: number;
  readonly simulatedMs: number;
}

/** Numbers that the faults in force change. */
interface Weather {
  delayMs: number;
  cutOnce: number;
  parted: { readonly from: string; readonly untilMs: number } | undefined;
  flushMs: number;
  failsFlush: boolean;
}

export class Town {
  readonly #plan: Plan;
  readonly #weather: Weather = {
    delayMs: 2,
    cutOnce: 0,
    parted: undefined,
    flushMs: 1,
    failsFlush: false,
  };
  readonly #folder = mkdtempSync('/dev/shm/farebox-simulation-');
  readonly #models: ModelServer[] = [];
  readonly #callers: Caller[] = [];
  readonly #credited = new Map<string, { accountId: string; cents: number }>();
  readonly #events: StripeEvent[] = [];
  #stripe: StripeDouble | undefined;
  #stripeMachine: Machine | undefined;
  #isOver = false;
  #isCalm = false;
  #owner = '';
  #farebox!: FareboxMachine;

  constructor(plan: Plan) {
    this.#plan = plan;
  }

  /** Throws the first defect. */
  async run(): Promise<RunResult> {
    this.#prepare();
    const startedMs = world().nowMs;
    let isDone = false;
    try {
      world().on(world().machine('director'), () => {
        this.#direct().then(
          () => (isDone = true),
          (error: unknown) =>
            world().fail(error instanceof Error ? error : new Error(String(error))),
        );
      });
      const hasEvents = await world().run(() => isDone);
      if (!hasEvents) throw new Error('Nothing happens any more, and the run has not ended');
    } finally {
      rmSync(this.#folder, { recursive: true, force: true });
    }
    const seen = this.#callers.flatMap((caller) => caller.seen);
    return {
      traceHash: world().traceHash(),
      steps: world().steps,
      requests: seen.length,
      served: seen.filter((one) => one.status === 200).length,
      simulatedMs: world().nowMs - startedMs,
    };
  }

  #prepare(): void {
    const weather = this.#weather;
    const { random } = world();
    resetNetwork({
      delayMs: () => random.between(1, weather.delayMs),
      partedUntilMs: (from, to) => {
        const { parted } = weather;
        const isParted = parted !== undefined && [from.name, to.name].includes(parted.from);
        return isParted ? parted.untilMs : 0;
      },
      cuts: () => weather.cutOnce > 0 && random.once(weather.cutOnce),
    });
    resetDisk({
      flushMs: () => random.between(1, weather.flushMs),
      fails: () => weather.failsFlush,
    });
  }

  async #direct(): Promise<void> {
    for (const port of MODEL_PORTS) {
      const model = new ModelServer(`model ${port}`, port);
      model.start();
      this.#models.push(model);
    }
    const processor = world().machine('card processor');
    this.#stripeMachine = processor;
    const stripe = await world().on(processor, () => StripeDouble.start());
    this.#stripe = stripe;
    stripe.onEvent = (event) => this.#events.push(event);
    this.#farebox = new FareboxMachine({
      folder: this.#folder,
      port: FAREBOX_PORT,
      yaml: YAML(stripe.yaml()),
    });
    await this.#farebox.start();
    await this.#openAccounts();
    const callers = this.#callers.map((caller) =>
      world().on(world().machine(caller.account.name), () => caller.run()),
    );
    const others = [this.#operator(), this.#cards(), this.#inspector()];
    await this.#strikes();
    this.#isOver = true;
    await Promise.all(callers);
    await world().sleep(CALM_MS);
    this.#isCalm = true;
    await Promise.all(others);
    await this.#keepRunning();
    await this.#verify();
    await this.#farebox.stop();
    await this.#keepRunning();
    await this.#verify();
    await this.#farebox.stop();
  }

  async #openAccounts(): Promise<void> {
    const { app, machine } = this.#running();
    await world().on(machine, async () => {
      const { identity, ledger, store } = app.stores;
      const limits = { starterCreditUsd: '100' };
      const config = { limits, listen: { host: '127.0.0.1' } } as unknown as Config; // its only members
      this.#owner = (await welcomeOwner(app.stores, config))?.secret ?? '';
      for (const plan of this.#plan.callers) {
        const { id: accountId } = await identity.createAccount(plan.name, 'paid');
        const usdLimitNano = plan.kind === 'capped' ? usdToNano(CAP_USD) : undefined;
        const { key, secret } = await identity.createKey({
          accountId,
          kind: 'INFERENCE',
          description: plan.name,
          expiresMs: undefined,
          limitPeriod: 'EPOCH',
          usdLimitNano,
          diemLimitNano: undefined,
          modelPrivacy: 'ALL',
          models: undefined,
          limits: {},
        });
        await store.transaction(async (tx) => {
          await ledger.creditIn(tx, {
            accountId,
            amountNano: usdToNano(CREDIT_USD[plan.kind]),
            from: 'house:operator-credit',
            kind: 'CREDIT',
            id: `first-${accountId}`,
          });
          if (usdLimitNano === undefined) return;
          const period = 'EPOCH' as const;
          await ledger.setCap(tx, {
            id: key.id,
            accountId,
            period,
            usdLimitNano,
            diemLimitNano: undefined,
          });
        });
        const account: CallerAccount = { ...plan, accountId, secret };
        this.#callers.push(new Caller(account, this.#farebox.url, () => this.#isOver));
      }
    });
  }

  #running() {
    const { app, machine } = this.#farebox;
    if (app === undefined || machine === undefined) throw new Error('The server does not run');
    return { app, machine };
  }

  /** Starts the server until it serves. */
  async #keepRunning(): Promise<void> {
    while (!this.#farebox.isRunning) await this.#farebox.start();
  }

  /** Faults of the plan, in their order; several can be in force. */
  async #strikes(): Promise<void> {
    const startedMs = world().nowMs;
    const lasting: Promise<void>[] = [];
    for (const fault of this.#plan.faults) {
      await world().sleep(Math.max(0, startedMs + fault.atMs - world().nowMs));
      world().note(`fault: ${fault.kind} for ${fault.forMs} ms`);
      const strike = this.#strike(fault);
      // A server that is down cannot fail again.
      if (fault.kind === 'crash' || fault.kind === 'restart' || fault.kind === 'failed flush')
        await strike;
      else lasting.push(strike);
    }
    await world().sleep(Math.max(0, startedMs + this.#plan.durationMs - world().nowMs));
    await Promise.all(lasting);
    Object.assign(this.#weather, {
      delayMs: 2,
      cutOnce: 0,
      parted: undefined,
      flushMs: 1,
      failsFlush: false,
    });
  }

  async #strike({ kind, forMs, strength }: Fault): Promise<void> {
    const weather = this.#weather;
    const farebox = this.#farebox;
    const { machine } = farebox;
    const model = this.#models[Math.floor(strength * this.#models.length)]!;
    const during = async <T extends object>(target: T, change: Partial<T>): Promise<void> => {
      const before = Object.fromEntries(
        Object.keys(change).map((name) => [name, Reflect.get(target, name)]),
      );
      Object.assign(target, change);
      await world().sleep(forMs);
      Object.assign(target, before);
    };
    switch (kind) {
      case 'crash':
        farebox.crash();
        await world().sleep(Math.min(forMs, 10_000));
        return this.#keepRunning();
      case 'restart':
        await farebox.stop();
        return this.#keepRunning();
      case 'pause':
        if (machine !== undefined) machine.pausedUntilMs = world().nowMs + forMs;
        return;
      case 'clock':
        if (machine !== undefined) machine.skewMs = Math.round((strength - 0.5) * HOUR_MS);
        return;
      case 'slow disk':
        return during(weather, { flushMs: Math.ceil(strength * 2_000) });
      case 'failed flush':
        await during(weather, { failsFlush: true });
        farebox.crash();
        return this.#keepRunning();
      case 'slow network':
        return during(weather, { delayMs: Math.ceil(strength * 2_000) });
      case 'network cut':
        return during(weather, { cutOnce: Math.ceil(5 + strength * 100) });
      case 'partition': {
        const names = ['model 9001', 'model 9002', 'card processor', machine?.name ?? ''];
        const from = names[Math.floor(strength * names.length)]!;
        return during(weather, { parted: { from, untilMs: world().nowMs + forMs } });
      }
      case 'slow model':
        return during(model.faults, { slowMs: Math.ceil(strength * 20_000) });
      case 'failing model':
        return during(model.faults, { failOnce: Math.ceil(1 + strength * 5) });
      case 'dead model':
        return during(model.machine, { pausedUntilMs: world().nowMs + forMs });
      case 'card processor': {
        const { random } = world();
        const stripe = this.#stripe!;
        const fates = ['lose-request', 'lose-reply', 'error'] as const;
        return during(stripe, { fate: () => (random.once(3) ? random.pick(fates) : 'pass') });
      }
    }
  }

  /** Credits callers by the API, and repeats each credit under its reference until it is confirmed. */
  async #operator(): Promise<void> {
    const { random } = world();
    for (let count = 0; !this.#isOver; count += 1) {
      await world().sleep(random.between(1_000, 30_000));
      const { accountId } = random.pick(this.#callers).account;
      const cents = random.between(1, 500);
      const reference = `move-${count}-of-this-run`;
      while (!this.#isCalm) {
        const reply = await send({
          method: 'POST',
          url: `${this.#farebox.url}/admin/accounts/${accountId}/credit`,
          headers: { authorization: `Bearer ${this.#owner}`, 'content-type': 'application/json' },
          body: JSON.stringify({ amountUsd: (cents / 100).toFixed(2), reference }),
          patienceMs: random.once(3) ? random.between(1, 50) : PATIENCE_MS,
        });
        world().note(`operator saw ${reply?.status ?? 'no response'} for ${reference}`);
        if (reply?.status === 200) {
          this.#credited.set(reference, { accountId, cents });
          break;
        }
        await world().sleep(random.between(100, 5_000));
      }
    }
  }

  /** Payers pay with cards, banks decide and dispute, and webhooks arrive late, twice or never. */
  async #cards(): Promise<void> {
    const { random } = world();
    const stripe = this.#stripe!;
    const payers = this.#callers.filter(({ account }) => account.kind === 'payer');
    while (!this.#isCalm) {
      await world().sleep(random.between(1_000, 20_000));
      const payer = payers.length === 0 ? undefined : random.pick(payers);
      if (!this.#isOver && payer !== undefined) await this.#checkout(payer.account);
      await this.#deliverSome();
      await world().on(this.#stripeMachine!, async () => {
        for (const session of stripe.sessions.values()) {
          if (session.status !== 'open' || random.once(3)) continue;
          if (random.once(10)) stripe.expire(session.id);
          else stripe.pay(session.id, { isDelayed: random.once(5) });
        }
        for (const intent of stripe.intents.values()) {
          if (intent.status === 'processing') stripe.decide(intent, random.once(2));
          if (this.#isOver || intent.status !== 'succeeded' || !random.once(20)) continue;
          const left = stripe.kept().get(intent.metadata['farebox_payment'] ?? '') ?? 0;
          const isDisputed = stripe.disputes.some((one) => one.payment_intent === intent.id);
          if (left <= 0 || isDisputed) continue;
          if (random.once(2)) stripe.refundByHand(intent, random.between(1, left));
          else stripe.dispute(intent, left);
        }
        for (const dispute of stripe.disputes) {
          if (dispute.status === 'needs_response' && random.once(5))
            stripe.closeDispute(dispute, random.once(2));
        }
      });
    }
  }

  async #checkout({ secret, name }: CallerAccount): Promise<void> {
    const reply = await send({
      method: 'POST',
      url: `${this.#farebox.url}/billing/checkout`,
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ amountUsd: world().random.between(5, 40) }),
      patienceMs: PATIENCE_MS,
    });
    world().note(`${name} saw ${reply?.status ?? 'no response'} for a checkout`);
  }

  async #deliverSome(): Promise<void> {
    const { random } = world();
    for (let left = this.#events.length; left > 0; left -= 1) {
      const [event] = this.#events.splice(random.between(0, this.#events.length - 1), 1);
      if (event === undefined || random.once(6)) continue;
      if (random.once(6)) this.#events.push(event);
      const status = await world().on(this.#stripeMachine!, () =>
        this.#stripe!.deliver(event, this.#farebox.url),
      );
      world().note(`webhook ${event.type}: ${status}`);
    }
  }

  /** Checks the books during the run. */
  async #inspector(): Promise<void> {
    while (!this.#isCalm) {
      await world().sleep(LOOK_EVERY_MS);
      const { app, machine } = this.#farebox;
      if (app === undefined || machine === undefined) continue;
      if (machine.pausedUntilMs > world().nowMs) continue;
      const died = new Promise<void>((resolve) => machine.onDeath.add(resolve));
      await Promise.race([world().on(machine, () => booksAreRight(app)), died]);
    }
  }

  async #verify(): Promise<void> {
    const { app, machine } = this.#running();
    const witness: Witness = {
      accounts: this.#callers.map(({ account }) => account),
      seen: this.#callers.flatMap(({ seen }) => seen),
      credited: this.#credited,
      stripe: this.#stripe,
    };
    await world().on(machine, () => runIsRight(app, witness));
  }
}
