/** The operator, and payers with their banks. */
import { decimalUsd } from '../../src/core/money.ts';
import { send } from './http.ts';
import type { CallerAccount, Town } from './town.ts';
import { world } from './world.ts';

const PATIENCE_MS = 60_000;
/** About a request. */
const CREDIT_STEP_NANO = 100_000;
/** Maximum of the automatic charges of a card. */
export const MONTHLY_USD = 100;

/** Credits callers and pays credit back, and repeats each of both under its reference until it is confirmed. */
export async function operate(town: Town): Promise<void> {
  const { random } = world();
  for (let count = 0; !town.isOver; count += 1) {
    await world().sleep(random.between(1, 2 * town.plan.creditEveryMs));
    const reference = `move-${count}-of-this-run`;
    if (random.once(3)) await refund(town, reference);
    else await credit(town, reference);
  }
}

async function credit(town: Town, reference: string): Promise<void> {
  const { random } = world();
  const { accountId, kind } = random.pick(town.accounts);
  const amountNano = BigInt(random.between(1, kind === 'poor' ? 10 : 50_000) * CREDIT_STEP_NANO);
  const body = { amountUsd: decimalUsd(amountNano), reference };
  if ((await move(town, `${accountId}/credit`, body)) !== 200) return;
  town.credited.set(reference, { accountId, amountNano });
  town.happens('confirmation');
}

/** Pays credit back to a wallet or a card. */
async function refund(town: Town, reference: string): Promise<void> {
  const { random } = world();
  const payers = town.accounts.filter(({ kind }) => kind === 'payer');
  const to = [
    ...town.wallets.map((address) => `${address}/refund`),
    ...payers.map(({ accountId }) => `${accountId}/card-refund`),
  ];
  const amountUsd = random.once(3) ? 'all' : `${random.between(1, 6)}.00`;
  if (to.length > 0) await move(town, random.pick(to), { amountUsd, reference });
}

/** Repeats a request of the operator until it is confirmed or rejected; returns the status. */
async function move(town: Town, path: string, body: object): Promise<number | undefined> {
  const { random } = world();
  while (!town.isCalm) {
    const reply = await send(`${town.url()}/admin/accounts/${path}`, {
      secret: town.owner,
      body,
      patienceMs: random.once(3) ? random.between(1, 50) : PATIENCE_MS,
    });
    world().note(
      `operator saw ${reply?.status ?? 'no response'} for ${path} ${JSON.stringify(body)}`,
    );
    if (reply !== undefined && reply.status < 500 && reply.status !== 429) return reply.status;
    await world().sleep(random.between(100, 5_000));
  }
  return undefined;
}

/** Payers pay with cards, banks decide and dispute, and webhooks arrive late, twice or never. */
export async function payByCard(town: Town): Promise<void> {
  const { random } = world();
  const stripe = town.stripe;
  const payers = town.accounts.filter(({ kind }) => kind === 'payer');
  for (;;) {
    await world().sleep(random.between(1, 2 * town.plan.checkoutEveryMs));
    // The server would not see a change that happens now.
    if (town.isCalm) return;
    const payer = payers.length === 0 ? undefined : random.pick(payers);
    if (!town.isOver && payer !== undefined) await checkout(town, payer);
    await deliverSome(town);
    stripe.declines = random.once(4) ? 'insufficient_funds' : undefined;
    await town.stripeMachine.run(async () => {
      for (const session of stripe.sessions.values()) {
        if (session.status !== 'open' || random.once(3)) continue;
        if (random.once(10)) stripe.expire(session.id);
        else stripe.pay(session.id, { isDelayed: random.once(5) });
      }
      for (const intent of stripe.intents.values()) {
        if (intent.status === 'processing') stripe.decide(intent, random.once(2));
        if (town.isOver || intent.status !== 'succeeded' || !random.once(20)) continue;
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

async function checkout(town: Town, { secret, name }: CallerAccount): Promise<void> {
  const { random } = world();
  const to = { secret, patienceMs: PATIENCE_MS };
  const body = { amountUsd: random.between(5, 40), saveCard: random.once(2) };
  const reply = await send(`${town.url()}/billing/checkout`, { ...to, body });
  world().note(`${name} saw ${reply?.status ?? 'no response'} for a checkout`);
  const keepUsd = random.between(10, 60);
  const topUp = { keepUsd, chargeUsd: random.between(5, 20), monthlyUsd: MONTHLY_USD };
  const set = { ...to, method: 'PUT', body: topUp } as const;
  const done = await send(`${town.url()}/billing/auto-top-up`, set);
  world().note(`${name} saw ${done?.status ?? 'no response'} for an automatic top-up`);
}

async function deliverSome(town: Town): Promise<void> {
  const { random } = world();
  for (let left = town.events.length; left > 0; left -= 1) {
    const [event] = town.events.splice(random.between(0, town.events.length - 1), 1);
    if (event === undefined || random.once(6)) continue;
    if (random.once(6)) town.events.push(event);
    const status = await town.stripeMachine.run(() => town.stripe.deliver(event, town.url()));
    world().note(`webhook ${event.type}: ${status}`);
  }
}
