/**
 * `GET` and `POST /api_keys/generate_web3_key`: an API key for the credit of a wallet. The wallet
 * signs a token of ours as text; no ADMIN key is needed, the signature is the owner's word.
 */
import type { ManageKeys } from '../manage-keys.ts';
import { type Identity, walletCaller } from '../../identity/identity.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Payments } from '../../payments/payments.ts';
import { readBody } from '../../http/read-request.ts';
import { type Route, SMALL_JSON_BODY } from '../../http/route.ts';
import { createdBody, wishOf } from '../api-keys/api-keys.ts';
import { CREATE_WALLET_KEY, KEY_CHALLENGE } from './describe.ts';
import { CreateWalletKeyRequest } from './schema.ts';

const PATH = '/api_keys/generate_web3_key';

export interface WalletKeyRouteParts {
  /** `undefined` on a server without rails. */
  readonly payments: Payments | undefined;
  readonly identity: Identity;
  readonly keys: ManageKeys;
  readonly clock: Clock;
}

export function walletKeyRoutes(parts: WalletKeyRouteParts): Route[] {
  return [challenge(parts), create(parts)];
}

function challenge(parts: WalletKeyRouteParts): Route {
  return {
    method: 'GET',
    path: PATH,
    auth: 'public',
    describe: KEY_CHALLENGE,
    handle: async (context) => {
      const token = requirePayments(parts).keyChallenges.mint();
      context.set('cache-control', 'no-store');
      await context.json(200, { success: true, data: { token } });
    },
  };
}

function create(parts: WalletKeyRouteParts): Route {
  return {
    method: 'POST',
    path: PATH,
    auth: 'public',
    describe: CREATE_WALLET_KEY,
    body: SMALL_JSON_BODY,
    handle: async (context) => {
      const payments = requirePayments(parts);
      const request = readBody(context, CreateWalletKeyRequest);
      const wish = wishOf(request, parts.clock);
      const wallet = await payments.keyChallenges.signerOf(request);
      await parts.identity.openWalletAccount(wallet);
      const made = await parts.keys.create(walletCaller(wallet), request.apiKeyType, wish);
      context.setAll(made.headers);
      context.set('cache-control', 'no-store');
      await context.json(200, createdBody(made.key, made.secret));
    },
  };
}

function requirePayments({ payments }: WalletKeyRouteParts): Payments {
  if (payments !== undefined) return payments;
  throw new Fault('X402_NOT_CONFIGURED');
}
