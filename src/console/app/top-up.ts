/**
 * A top-up by x402: the offer is asked for, the wallet signs one payment, and that payment is sent
 * until the service says that it is credited or failed. The same payment is sent again, never another
 * one. It is kept in this browser until then, so that a closed tab loses nothing; it can pay nobody
 * but the service.
 */
import { signal } from '@preact/signals';
import { ApiError, call, refusalOf, send } from './api.ts';
import { usdText } from './format.ts';
import type { Rail } from './page-facts.ts';
import { encodeHeader } from './wallets/sign-in.ts';
import { type ConnectedWallet, type Offer, UNITS_PER_USD, usdOfUnits } from './wallets/wallet.ts';

export type TopUpStep = 'signing' | 'sending' | 'confirming' | 'credited' | 'failed';

export interface TopUpState {
  readonly step: TopUpStep;
  readonly rail: Rail;
  readonly address: string;
  readonly amountUsd: number;
  readonly startedAt: string;
  /** In words, of a failure or of what is waited for. */
  readonly says?: string;
  readonly paymentId?: string;
}

/** What is kept until it is over. */
interface Kept {
  readonly header: string;
  /** Marks the retry of the request that opened the payment. */
  readonly claim?: string;
  readonly state: TopUpState;
}

const KEY = 'top-up';
const RETRY_MS = 4_000;
/** A payment is good for some minutes; the chain's word may take longer. */
const MOST_TRIES = 150;

export const topUp = signal<TopUpState | undefined>(undefined);
let abort: AbortController | undefined;

export interface TopUpOffer {
  readonly offer: Offer;
  readonly minimumUsd: number;
}

const NAMESPACES: Readonly<Record<Rail, string>> = { base: 'eip155:', solana: 'solana:' };

/** What the service takes on a rail now. Throws when it takes none. */
export async function findOffer(rail: Rail): Promise<TopUpOffer> {
  const answer = await send('/x402/top-up', { method: 'POST' });
  if (answer.status !== 402) throw await refusalOf(answer);
  const { accepts } = (await answer.json()) as { accepts: readonly Offer[] }; // by x402
  const offer = accepts.find(({ network }) => network.startsWith(NAMESPACES[rail]));
  if (offer === undefined)
    throw new ApiError(503, 'RAIL_AWAY', 'This rail takes no payments now; try again later');
  if (rail === 'base') return { offer, minimumUsd: usdOfUnits(BigInt(offer.amount)) };
  const block = await call<{ blockhash: string; lastValidBlockHeight: string }>(
    '/x402/solana/blockhash',
  );
  const extra = {
    ...offer.extra,
    recentBlockhash: block.blockhash,
    lastValidBlockHeight: block.lastValidBlockHeight,
  };
  return { offer: { ...offer, extra }, minimumUsd: usdOfUnits(BigInt(offer.amount)) };
}

/** Signs and pays; resolves when it is over. Never rejects: the state says what became of it. */
export async function startTopUp(wallet: ConnectedWallet, amountUsd: number): Promise<void> {
  const { rail, address } = wallet;
  const state: TopUpState = {
    step: 'signing',
    rail,
    address,
    amountUsd,
    startedAt: new Date().toISOString(),
  };
  topUp.value = state;
  try {
    const { offer } = await findOffer(rail);
    const units = BigInt(Math.round(amountUsd * UNITS_PER_USD));
    const payload = await wallet.signPayment(offer, units);
    const accepted = { ...offer, amount: String(units) };
    const header = encodeHeader({ x402Version: 2, accepted, payload });
    const kept: Kept = { header, state: { ...state, step: 'sending' } };
    keep(kept);
    await settle(kept);
  } catch (error) {
    fail(state, error instanceof Error ? error.message : String(error));
  }
}

/** Goes on with what an earlier page had begun. */
export function resumeTopUp(): void {
  const kept = read();
  if (kept === undefined || abort !== undefined) return;
  void settle({
    ...kept,
    state: { ...kept.state, step: 'confirming', says: 'Going on where this was left' },
  });
}

/** The word of a top-up that is over has been read. */
export function dismissTopUp(): void {
  topUp.value = undefined;
}

/** Forgets the payment; what was sent goes on without this page. */
export function abandonTopUp(): void {
  abort?.abort();
  keep(undefined);
  topUp.value = undefined;
}

async function settle(first: Kept): Promise<void> {
  let kept = first;
  const { state } = kept;
  const ending = new AbortController();
  abort = ending;
  topUp.value = state;
  try {
    for (let attempt = 0; attempt < MOST_TRIES && !ending.signal.aborted; attempt += 1) {
      const outcome = await sendPayment(kept);
      if (outcome.isOver) return;
      kept = outcome.kept;
      keep(kept);
      topUp.value = { ...state, step: 'confirming', says: outcome.says };
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    if (!ending.signal.aborted) {
      topUp.value = {
        ...state,
        step: 'confirming',
        says: 'The chain has not confirmed it for a long time. Nothing is lost: reload this page to look again.',
      };
    }
  } finally {
    abort = undefined;
  }
}

type Outcome =
  | { readonly isOver: true }
  | { readonly isOver: false; readonly kept: Kept; readonly says: string };

/** Sends the payment once more. */
async function sendPayment(kept: Kept): Promise<Outcome> {
  const { header, claim, state } = kept;
  const headers = {
    'payment-signature': header,
    ...(claim === undefined ? {} : { 'payment-claim': claim }),
  };
  let answer: Response;
  try {
    answer = await send('/x402/top-up', { method: 'POST', headers });
  } catch {
    // The connection is gone; the same payment is sent when it is back.
    return {
      isOver: false,
      kept,
      says: 'The server cannot be reached; the same payment is sent again',
    };
  }
  const given = answer.headers.get('payment-claim');
  const next = given === null ? kept : { ...kept, claim: given };
  if (answer.ok && answer.status !== 202) {
    const { data } = (await answer.json()) as { data: { paymentId: string } }; // as the route promises
    keep(undefined);
    topUp.value = { ...state, step: 'credited', paymentId: data.paymentId };
    return { isOver: true };
  }
  const refusal = await refusalOf(answer);
  if (refusal.code === 'PAYMENT_ALREADY_CREDITED') {
    keep(undefined);
    topUp.value = { ...state, step: 'credited' };
    return { isOver: true };
  }
  if (
    answer.status === 202 ||
    answer.status === 503 ||
    answer.status === 429 ||
    isUnderWay(refusal)
  ) {
    return { isOver: false, kept: next, says: WAITING[refusal.code] ?? refusal.message };
  }
  fail(state, FAILURES.find(([words]) => words.test(refusal.message))?.[1] ?? refusal.message);
  return { isOver: true };
}

function isUnderWay({ code, message }: ApiError): boolean {
  return code === 'PAYMENT_IN_PROGRESS' && !message.includes('identifier');
}

const WAITING: Readonly<Record<string, string>> = {
  SETTLEMENT_PENDING: 'The payment is on its way; the chain has not confirmed it yet',
  PAYMENT_IN_PROGRESS: 'The payment is on its way; the chain has not confirmed it yet',
};

/** Words of the chain, said for people. */
const FAILURES: readonly (readonly [RegExp, string])[] = [
  [
    /insufficient|balance.*low|0x1\b/i,
    'The wallet has too little USDC for this payment. Nothing has moved.',
  ],
  [
    /simulation_failed/,
    'The chain would refuse this payment; most likely the wallet has too little USDC. Nothing has moved.',
  ],
  [
    /expired|valid_before|blockhash/i,
    'The signature came too late: the payment had expired. Nothing has moved; sign again.',
  ],
];

function fail(state: TopUpState, says: string): void {
  keep(undefined);
  topUp.value = { ...state, step: 'failed', says };
}

function keep(kept: Kept | undefined): void {
  try {
    if (kept === undefined) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // Without storage it lasts as long as the page.
  }
}

function read(): Kept | undefined {
  try {
    const text = localStorage.getItem(KEY);
    return text === null ? undefined : (JSON.parse(text) as Kept); // written by `keep`
  } catch {
    return undefined;
  }
}

/** What will be asked for, before anybody signs. */
export function explain(rail: Rail, amountUsd: number, payTo: string): readonly string[] {
  const amount = usdText(amountUsd);
  return [
    `Your wallet asks you to sign a payment of ${amount} in USDC on ${rail === 'base' ? 'Base' : 'Solana'} to ${payTo}.`,
    'This service sends it and pays the fee of the chain. You need no other coin.',
    `When the chain has confirmed it, ${amount} is credited to the account of that wallet. You may close this page meanwhile.`,
  ];
}
