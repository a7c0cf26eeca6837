/** `GET /x402/solana/blockhash`: the block that a payment on Solana names. */
import { limitRequests } from '../../http/limit-requests.ts';
import { z } from 'zod';
import { Fault } from '../../core/faults.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import { requirePayments } from '../../payments/payments.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const RECENT_BLOCK: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get a recent block of Solana',
  about: 'A payment on Solana names it; with it a payer needs no node of its own.',
  response: jsonResponse(
    'Good for a payment within the next minute.',
    z
      .strictObject({
        blockhash: z.string().describe('The block that the transaction names.'),
        lastValidBlockHeight: z
          .string()
          .describe('Height of the chain from which on the transaction is dead.'),
      })
      .meta({ id: 'RecentBlock' }),
    {
      blockhash: 'EkSnNWid2cvwEVnVx9aBqawnmiCNiDgp3gUdkDPTKN1N',
      lastValidBlockHeight: '301234567',
    },
    'no-store',
  ),
  refusals: ['X402_NOT_CONFIGURED', 'SERVICE_UNAVAILABLE', 'RATE_LIMIT_EXCEEDED'],
};

export function recentBlockRoute(options: WalletRouteOptions): Route {
  return {
    method: 'GET',
    path: '/x402/solana/blockhash',
    auth: 'public',
    describe: RECENT_BLOCK,
    handle: async (context) => {
      const bucket = `x402-blockhash|${context.countedAddress}`;
      await limitRequests(options, bucket, options.perMinute.topUp);
      const { solana } = requirePayments(options.payments);
      if (solana === undefined) throw new Fault('X402_NOT_CONFIGURED');
      const { blockhash, lastValidBlockHeight } = await solana.recentBlock().catch((cause) => {
        throw new Fault('SERVICE_UNAVAILABLE', {
          message: 'Solana does not answer at the moment; try again',
          retryAfterSeconds: 5,
          cause,
        });
      });
      context.set('cache-control', 'no-store');
      await context.json(200, { blockhash, lastValidBlockHeight: String(lastValidBlockHeight) });
    },
  };
}
