/** `GET /x402/solana/blockhash`: a recent blockhash for a payment on Solana. */
import { limitRequests } from '../../http/limit-requests.ts';
import * as z from 'zod';
import { Fault } from '../../core/faults.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import { requirePayments } from '../../payments/payments.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const RECENT_BLOCK: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get a recent blockhash of Solana',
  about: 'A payment on Solana contains a recent blockhash. With this route a payer needs no node.',
  response: jsonResponse(
    'Valid for a payment within the next minute.',
    z
      .strictObject({
        blockhash: z.string().describe('The blockhash for the transaction.'),
        lastValidBlockHeight: z
          .string()
          .describe('Last block height at which the transaction is valid.'),
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
          message: 'The Solana node does not respond; try again in a few seconds',
          retryAfterSeconds: 5,
          cause,
        });
      });
      context.set('cache-control', 'no-store');
      await context.json(200, { blockhash, lastValidBlockHeight: String(lastValidBlockHeight) });
    },
  };
}
