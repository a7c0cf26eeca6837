/**
 * A top-up by x402: loads the offer, has the wallet sign one payment, and sends this payment until the
 * server reports it as credited or failed. The browser stores the signed payment until then, so that a
 * closed tab loses nothing. A stored payment can pay only this service.
 */
import { signal } from '@preact/signals';
import { ApiError, call, errorOf, send } from './api.ts';
import { readStored, writeStored } from './browser-storage.ts';
import { usdText } from './format.ts';
import { type Rail, networkName } from './page-facts.ts';
import { encodeHeader } from './wallets/sign-in.ts';
import { type ConnectedWallet, type Offer, UNITS_PER_USD, usdOfUnits } from './wallets/wallet.ts';

export type TopUpStep = 'signing' | 'sending' | 'confirming' | 'credited' | 'failed';

export interface TopUpState {
  readonly step: TopUpStep;
  readonly rail: Rail;
  /** CAIP-2; missing in a payment that an older page stored. */
  readonly network?: string;
  readonly address: string;
  readonly amountUsd: number;
  readonly startedAt: string;
  /** Describes a failure, or the state of the payment. */
  readonly message?: string;
  readonly paymentId?: string;
}

interface Kept {
  readonly header: string;
  /** Proves a retry of the request that opened the payment. */
  readonly claim?: string;
  readonly state: TopUpState;
}

const KEY = 'top-up';
const RETRY_MS = 4_000;
/** Ten minutes: a payment expires earlier, but its confirmation may take longer. */
const MAX_TRIES = 150;

export const topUp = signal<TopUpState | undefined>(undefined);
let abort: AbortController | undefined;

export interface TopUpOffer {
  readonly offer: Offer;
  readonly minimumUsd: number;
}

const NAMESPACES: Readonly<Record<Rail, string>> = { base: 'eip155:', solana: 'solana:' };

/** Loads the offers of the service for a kind of wallet, one for each network. Throws if there is none. */
export async function findOffers(rail: Rail): Promise<readonly TopUpOffer[]> {
  const response = await send('/x402/top-up', { method: 'POST' });
  if (response.status !== 402) throw await errorOf(response);
  const { accepts } = (await response.json()) as { accepts: readonly Offer[] }; // by x402
  const offers = accepts.filter(
    ({ network }, index) =>
      network.startsWith(NAMESPACES[rail]) &&
      accepts.findIndex((other) => other.network === network) === index,
  );
  const [first] = offers;
  if (first === undefined) {
    throw new ApiError(503, 'RAIL_AWAY', 'This rail accepts no payments now. Try again later');
  }
  const minimumOf = ({ amount }: Offer): number => usdOfUnits(BigInt(amount));
  if (rail === 'base') return offers.map((offer) => ({ offer, minimumUsd: minimumOf(offer) }));
  const block = await call<{ blockhash: string; lastValidBlockHeight: string }>(
    '/x402/solana/blockhash',
  );
  const extra = {
    ...first.extra,
    recentBlockhash: block.blockhash,
    lastValidBlockHeight: block.lastValidBlockHeight,
  };
  return [{ offer: { ...first, extra }, minimumUsd: minimumOf(first) }];
}

/** Signs and sends a payment; resolves at its end. Never rejects: `topUp` contains the result. */
export async function startTopUp(
  wallet: ConnectedWallet,
  amountUsd: number,
  network: string,
): Promise<void> {
  const { rail, address } = wallet;
  const state: TopUpState = {
    step: 'signing',
    rail,
    network,
    address,
    amountUsd,
    startedAt: new Date().toISOString(),
  };
  topUp.value = state;
  try {
    const offers = await findOffers(rail);
    const offer = offers.find((one) => one.offer.network === network)?.offer;
    if (offer === undefined) {
      throw new Error(`${networkName(network)} accepts no payments now. Try again later.`);
    }
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

/** Continues a payment of the wallet that an earlier page started. */
export function resumeTopUp(wallet: string): void {
  const kept = read(wallet);
  if (kept === undefined || abort !== undefined) return;
  void settle({
    ...kept,
    state: { ...kept.state, step: 'confirming', message: 'Continuing the earlier payment' },
  });
}

export function dismissTopUp(): void {
  topUp.value = undefined;
}

/** Stops watching the payment. The server completes a payment that was sent. */
export function abandonTopUp(): void {
  abort?.abort();
  if (topUp.value !== undefined) drop(topUp.value);
  topUp.value = undefined;
}

async function settle(first: Kept): Promise<void> {
  let kept = first;
  const { state } = kept;
  const ending = new AbortController();
  abort = ending;
  topUp.value = state;
  try {
    for (let attempt = 0; attempt < MAX_TRIES && !ending.signal.aborted; attempt += 1) {
      const outcome = await sendPayment(kept);
      // The next payment may have begun meanwhile.
      if (ending.signal.aborted) return;
      if (outcome.isOver) {
        drop(state);
        topUp.value = { ...state, ...outcome.end };
        return;
      }
      kept = outcome.kept;
      keep(kept);
      topUp.value = { ...state, step: 'confirming', message: outcome.message };
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    if (!ending.signal.aborted) {
      topUp.value = {
        ...state,
        step: 'confirming',
        message:
          'The chain has not confirmed the payment yet. Your payment is safe: reload this page to check again.',
      };
    }
  } finally {
    if (abort === ending) abort = undefined;
  }
}

type Outcome =
  | { readonly isOver: true; readonly end: Pick<TopUpState, 'step' | 'message' | 'paymentId'> }
  | { readonly isOver: false; readonly kept: Kept; readonly message: string };

/** Never rejects. */
async function sendPayment(kept: Kept): Promise<Outcome> {
  const { header, claim } = kept;
  const headers = {
    'payment-signature': header,
    ...(claim === undefined ? {} : { 'payment-claim': claim }),
  };
  try {
    const response = await send('/x402/top-up', { method: 'POST', headers });
    const given = response.headers.get('payment-claim');
    return await outcomeOf(response, given === null ? kept : { ...kept, claim: given });
  } catch {
    // The next attempt sends the same payment.
    return {
      isOver: false,
      kept,
      message: 'The server cannot be reached. The same payment will be sent again',
    };
  }
}

async function outcomeOf(response: Response, kept: Kept): Promise<Outcome> {
  const { status } = response;
  if (response.ok && status !== 202) {
    const { data } = (await response.json()) as { data: { paymentId: string } }; // documented
    return { isOver: true, end: { step: 'credited', paymentId: data.paymentId } };
  }
  const error = await errorOf(response);
  if (error.code === 'PAYMENT_ALREADY_CREDITED') return { isOver: true, end: { step: 'credited' } };
  // After an error of the server or a proxy, the payment may have been sent to the chain.
  if ([202, 408, 429].includes(status) || status >= 500 || isInProgress(error)) {
    const isPending = error.code === 'SETTLEMENT_PENDING' || error.code === 'PAYMENT_IN_PROGRESS';
    const message = isPending
      ? 'The payment was sent. The chain has not confirmed it yet'
      : error.message;
    return { isOver: false, kept, message };
  }
  const message = FAILURES.find(([words]) => words.test(error.message))?.[1] ?? error.message;
  return { isOver: true, end: { step: 'failed', message } };
}

function isInProgress({ code, message }: ApiError): boolean {
  return code === 'PAYMENT_IN_PROGRESS' && !message.includes('identifier');
}

/** Patterns in messages of the chain, with an explanation. */
const FAILURES: readonly (readonly [RegExp, string])[] = [
  [
    /insufficient|balance.*low|0x1\b/i,
    'The wallet has too little USDC for this payment. No money was moved.',
  ],
  [
    /simulation_failed/,
    'The chain would reject this payment, probably because the wallet has too little USDC. No money was moved.',
  ],
  [
    /expired|valid_before|blockhash/i,
    'The payment expired before it was signed. No money was moved. Try again and sign sooner.',
  ],
];

function fail(state: TopUpState, message: string): void {
  drop(state);
  topUp.value = { ...state, step: 'failed', message };
}

/** Several people can use a browser, so that each wallet has a payment of its own. */
function nameOf(wallet: string): string {
  return `${KEY} ${wallet.toLowerCase()}`;
}

function keep(kept: Kept): void {
  writeStored(nameOf(kept.state.address), JSON.stringify(kept));
}

function drop({ address }: TopUpState): void {
  writeStored(nameOf(address), undefined);
}

function read(wallet: string): Kept | undefined {
  const text = readStored(nameOf(wallet));
  return text === undefined ? undefined : (JSON.parse(text) as Kept); // written by `keep`
}

export function explain(network: string, amountUsd: number, payTo: string): readonly string[] {
  const amount = usdText(amountUsd);
  return [
    `Your wallet shows a request to sign a payment of ${amount} in USDC on ${networkName(network)} to ${payTo}.`,
    'The service sends the payment and pays the network fee. You need only USDC.',
    `When the chain has confirmed the payment, ${amount} is credited to the account of your wallet. You can close this page while you wait.`,
  ];
}
