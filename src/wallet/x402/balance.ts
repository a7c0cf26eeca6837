/** `GET /x402/balance/{walletAddress}`: the credit of the wallet that signed. */
import { balanceBody } from '../../payments/payments.ts';
import type { Route } from '../../http/route.ts';
import { WALLET_BALANCE } from './describe.ts';
import { requireConfigured, requireOwnWallet, takeTurn } from './route-checks.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

export function balanceRoute(parts: WalletRouteParts): Route {
  return {
    method: 'GET',
    path: '/x402/balance/:wallet',
    auth: 'wallet',
    about: 'Wallet balance',
    describe: WALLET_BALANCE,
    handle: async (context) => {
      const wallet = requireOwnWallet(context);
      await takeTurn(parts, `x402-balance|${wallet}`, parts.perMinute.balance);
      const payments = requireConfigured(parts);
      const { usdNano, diemNano } = await parts.ledger.balances(context.caller.accountId);
      const staked = await payments.stakedCredit(wallet);
      const isLinked = diemNano > 0n || (staked !== undefined && staked.credit > 0n);
      const daily = isLinked ? diemNano : undefined;
      await context.json(200, balanceBody(wallet, usdNano, payments.amounts, daily));
    },
  };
}
