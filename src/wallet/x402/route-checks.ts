/** What the wallet endpoints check before their work: rails, the minute's limit, whose wallet. */
import { MINUTE_MS } from '../../core/clock.ts';
import { Fault, invalidField } from '../../core/faults.ts';
import { type Payments, walletIdentity } from '../../payments/payments.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

/** decisions.md 5: the path parameter of the wallet endpoints. */
const WALLET_PATH = /^(?:0x[a-fA-F0-9]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/;

export function requireConfigured(parts: WalletRouteParts): Payments {
  if (parts.payments !== undefined) return parts.payments;
  throw new Fault('X402_NOT_CONFIGURED');
}

type TurnParts = Pick<WalletRouteParts, 'windows' | 'clock'>;

/** Top-ups of one address, on whatever endpoint they are paid. Throws 429. */
export async function takePaymentTurn(
  parts: TurnParts,
  context: RequestContext,
  perMinute: number,
): Promise<void> {
  await takeTurn(parts, `x402-top-up|${context.address}`, perMinute);
}

/** Counts a request against its route's limit of this minute. Throws 429. */
export async function takeTurn(parts: TurnParts, bucket: string, perMinute: number): Promise<void> {
  const nowMs = parts.clock.nowMs();
  const taken = await parts.windows.take(
    { bucket, tokens: 0, requestLimit: perMinute, tokenLimit: 0 },
    nowMs,
  );
  if (taken.ok) return;
  throw new Fault('RATE_LIMIT_EXCEEDED', {
    message: `This endpoint takes ${perMinute} requests a minute; try again when the minute is over`,
    retryAfterSeconds: Math.ceil((taken.state.resetsAtMs - nowMs) / (MINUTE_MS / 60)),
  });
}

/** The wallet of the path, which must be the one that signed. Throws 400, 403. */
export function requireOwnWallet(context: RequestContext): string {
  const given = context.parameters['wallet'] ?? '';
  if (!WALLET_PATH.test(given)) {
    throw invalidField(['walletAddress'], 'The wallet must be an EVM or a Solana address');
  }
  const wallet = walletIdentity(given);
  if (context.caller.wallet !== wallet) {
    throw new Fault('X402_WALLET_MISMATCH');
  }
  return wallet;
}
