/** Schemas and descriptions of the operator's routes about the running service. */
import * as z from 'zod';
import { cursorQuery, pageOf } from '../../http/cursor.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { JobState } from '../../video/job.ts';

const Time = z.string().describe('Time, ISO 8601, UTC.');
const Count = z.number().int();
const Usd = z.string().describe('Amount in USD, as a decimal number.');

export const VideosQuery = z.object({
  state: JobState.optional().describe('Only jobs in this state.'),
  ...cursorQuery(),
});

export type VideosResponse = z.infer<typeof VideosResponse>;
const VideosResponse = pageOf(
  z
    .object({
      id: z.string().describe('Id of the job (`queue_id`).'),
      accountId: z.string().describe('Account of the caller.'),
      accountName: z.string().describe('Name of the account; empty if it no longer exists.'),
      keyId: z.string().nullable().describe('API key; null for a wallet.'),
      model: z.string().describe('Id of the model.'),
      state: JobState.describe('State of the job.'),
      quoteUsd: Usd.describe('Price of the job, in USD.'),
      engine: z.string().nullable().describe('Engine of the job; null before the submission.'),
      attempts: Count.describe('Number of submissions to an engine.'),
      progress: z.number().describe('Progress, from 0 to 1.'),
      createdAt: Time,
      startedAt: Time.nullable().describe('Start at the engine, ISO 8601, UTC; null before.'),
      finishedAt: Time.nullable().describe('End of the job, ISO 8601, UTC; null before.'),
      executionMs: Count.describe('Execution time at the engine, in ms.'),
      failure: z
        .object({
          code: z.string().describe('Stable error code.'),
          message: z.string().describe('Error message.'),
        })
        .nullable()
        .describe('Error of a failed job; null otherwise.'),
      mediaBytes: Count.describe('Size of the stored video, in bytes.'),
    })
    .meta({ id: 'OperatorVideo' }),
);

export const VIDEOS: RouteDescription = {
  tag: 'Operator',
  summary: 'Video jobs',
  query: VideosQuery,
  response: jsonResponse('Jobs of all accounts, newest first.', VideosResponse, {
    object: 'list',
    data: [],
    nextCursor: null,
  }),
};

const TOP_UP_STATE = z.enum(['open', 'sent', 'credited', 'failed']);

export const TopUpsQuery = z.object({
  state: TOP_UP_STATE.optional().describe('Only payments in this state.'),
  wallet: z.string().max(100).optional().describe('Only payments of this wallet.'),
  stuck: z
    .enum(['true', 'false'])
    .optional()
    .describe(
      '`true`: only payments that wait for more than ten minutes, or are missing on their chain.',
    ),
  ...cursorQuery(),
});

const TOP_UP = {
  paymentId: z.string().describe('Id of the payment.'),
  network: z.string().describe('Network, CAIP-2.'),
  wallet: z.string().describe('Address of the payer.'),
  accountName: z
    .string()
    .describe('Name of the account of the wallet; empty before its first credit.'),
  amountUsd: Usd,
  state: TOP_UP_STATE.describe('State of the payment.'),
  transaction: z
    .string()
    .nullable()
    .describe('Id of the transaction on the chain; null before it is sent.'),
  explorerUrl: z
    .string()
    .nullable()
    .describe('URL of the transaction in a block explorer; null if no explorer is known.'),
  failure: z.string().nullable().describe('Reason of the failure, or the last error.'),
  createdAt: Time,
  updatedAt: Time,
  isWatched: z.boolean().describe('True until the credit or the failure is final on the chain.'),
  reversals: Count.describe('Number of reversals by the chain.'),
  isStuck: z.boolean().describe('True if the operator should check the payment.'),
};

export type TopUpAdminItem = z.infer<typeof TopUpAdminItem>;
const TopUpAdminItem = z.object(TOP_UP).meta({ id: 'OperatorTopUp' });

export type TopUpsResponse = z.infer<typeof TopUpsResponse>;
const TopUpsResponse = pageOf(TopUpAdminItem);

export const TOP_UPS: RouteDescription = {
  tag: 'Operator',
  summary: 'Payments',
  query: TopUpsQuery,
  response: jsonResponse('Payments of all wallets, newest first.', TopUpsResponse, {
    object: 'list',
    data: [],
    nextCursor: null,
  }),
};

export type TopUpDetailResponse = z.infer<typeof TopUpDetailResponse>;
const TopUpDetailResponse = z.object({
  data: z
    .object({
      ...TOP_UP,
      attempts: Count.describe('Number of checks.'),
      nextCheckAt: Time.describe('Time of the next check, ISO 8601, UTC.'),
      leaseUntil: Time.nullable().describe(
        'End of the lease of the process that handles the payment; null without a lease.',
      ),
      startHeight: z.string().describe('Block height at which the payment was received.'),
      creditedHeight: z.string().nullable().describe('Block of the transaction; null before.'),
      expiresAt: z
        .string()
        .describe('Expiry of the authorization: Unix seconds on Base, block height on Solana.'),
      vanishedAt: Time.nullable().describe(
        'Time since which a credited transaction is missing on the chain; null otherwise.',
      ),
      payTo: z.string().nullable().describe('Address of the receiver; null if it was not stored.'),
      asset: z
        .string()
        .nullable()
        .describe('Contract of the token, on Solana its mint; null if it was not stored.'),
      advice: z.string().describe('Next automatic step, and what the operator can do.'),
    })
    .meta({ id: 'OperatorTopUpDetail' })
    .describe('Payment.'),
});

export const TOP_UP_DETAIL: RouteDescription = {
  tag: 'Operator',
  summary: 'Get a payment',
  parameters: [
    { name: 'paymentId', in: 'path', about: 'Id of the payment.', example: 'x402-9f3c2a71' },
  ],
  response: jsonResponse('Payment with all details.', TopUpDetailResponse, {
    data: {
      paymentId: 'x402-9f3c2a71',
      network: 'eip155:8453',
      wallet: '0x2f3c0000000000000000000000000000000091ab',
      accountName: '0x2f3c0000000000000000000000000000000091ab',
      amountUsd: '10.0000',
      state: 'sent',
      transaction: '0x5e1f…',
      explorerUrl: 'https://basescan.org/tx/0x5e1f…',
      failure: null,
      createdAt: '2026-11-21T04:00:00.000Z',
      updatedAt: '2026-11-21T04:00:03.000Z',
      isWatched: false,
      reversals: 0,
      isStuck: true,
      attempts: 12,
      nextCheckAt: '2026-11-21T04:20:00.000Z',
      leaseUntil: null,
      startHeight: '38211004',
      creditedHeight: null,
      expiresAt: '1795234500',
      vanishedAt: null,
      payTo: '0x1111111111111111111111111111111111111111',
      asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
      advice: 'The transaction is sent but has too few confirmations; the server checks it again',
    },
  }),
  refusals: ['PAYMENT_NOT_FOUND'],
};

export type AuditResponse = z.infer<typeof AuditResponse>;
const AuditResponse = z
  .object({
    ok: z.boolean().describe('True if every stored amount equals the sum of its postings.'),
    accounts: Count.describe('Number of accounts.'),
    transfers: Count.describe('Number of postings.'),
    openHolds: Count.describe(
      'Number of holds of requests and jobs, in this process and in the database.',
    ),
    leasedUsd: Usd.describe(
      'Amount that processes on PostgreSQL have leased for requests, in USD.',
    ),
    owedUsd: Usd.describe('Balances of callers, in USD.'),
    debtsUsd: Usd.describe('Debts of callers after reversed payments, in USD.'),
    revenueUsd: Usd.describe('Charges since the beginning, in USD.'),
    differences: z
      .array(
        z.object({
          account: z.string().describe('Account of the ledger.'),
          accountName: z
            .string()
            .describe('Name of the account; empty for an account of the service.'),
          what: z.string().describe('Name of the amount.'),
          storedUsd: Usd,
          recomputedUsd: Usd,
        }),
      )
      .describe('Amounts that differ from their postings.'),
  })
  .meta({ id: 'OperatorAudit' });

export const AUDIT: RouteDescription = {
  tag: 'Operator',
  summary: 'Audit',
  about:
    'Recomputes every balance from the postings, as `farebox audit` does. It reads every row. Concurrent requests share one audit.',
  response: jsonResponse('Result of the audit.', AuditResponse, {
    ok: true,
    accounts: 12,
    transfers: 34000,
    openHolds: 2,
    leasedUsd: '0.0000',
    owedUsd: '1203.4500',
    debtsUsd: '0.0000',
    revenueUsd: '8120.1100',
    differences: [],
  }),
};

export type BackupsResponse = z.infer<typeof BackupsResponse>;
const BackupsResponse = z
  .object({
    isScheduled: z.boolean().describe('True if the configuration schedules backups.'),
    lastSuccessAt: Time.nullable().describe('End of the last successful backup to `backup.to`.'),
    data: z
      .array(
        z.object({
          startedAt: Time,
          endedAt: Time.nullable().describe('Null while the backup runs, or if it was killed.'),
          location: z.string().describe('File or `s3://` URL; empty if there is none.'),
          bytes: Count.describe('Size of the archive.'),
          problem: z.string().nullable().describe('Reason of a failure.'),
        }),
      )
      .describe('Newest first, at most 50.'),
  })
  .meta({ id: 'Backups' });

export const BACKUPS: RouteDescription = {
  tag: 'Operator',
  summary: 'Backups',
  about: 'Lists the backups that the schedule or `farebox backup` made.',
  response: jsonResponse('Backups.', BackupsResponse, {
    isScheduled: true,
    lastSuccessAt: '2026-11-21T03:55:04.000Z',
    data: [
      {
        startedAt: '2026-11-21T03:55:00.000Z',
        endedAt: '2026-11-21T03:55:04.000Z',
        location: '/srv/backups/farebox-20261121T035500000Z.tar.gz',
        bytes: 1203311,
        problem: null,
      },
    ],
  }),
};

export type ConfigResponse = z.infer<typeof ConfigResponse>;
const ConfigResponse = z
  .object({
    yaml: z.string().describe('Current settings as YAML, with masked secrets.'),
    reload: z
      .object({
        ok: z.boolean().describe('True if the file is valid.'),
        changed: z.array(z.string()).describe('Changed sections.'),
        restart: z.array(z.string()).describe('Changed sections that need a restart.'),
        problems: z.array(z.string()).describe('Problems of the file, with lines.'),
      })
      .describe('Effect of a reload now.'),
  })
  .meta({ id: 'OperatorConfig' });

export const CONFIG: RouteDescription = {
  tag: 'Operator',
  summary: 'Current configuration',
  response: jsonResponse(
    'Current settings, and the effect of a reload.',
    ConfigResponse,
    {
      yaml: 'publicUrl: https://api.example.com\n',
      reload: { ok: true, changed: ['models'], restart: [], problems: [] },
    },
    'no-store',
  ),
};

export type CheckResponse = z.infer<typeof CheckResponse>;
const CheckResponse = z
  .object({
    ok: z.boolean().describe('True if no finding has the state `wrong`.'),
    findings: z
      .array(
        z.object({
          what: z.string().describe('Checked item.'),
          state: z.enum(['ok', 'note', 'wrong']).describe('State; `note` is information.'),
          says: z.string().describe('Result as a sentence.'),
        }),
      )
      .describe('Findings, in the order of the checks.'),
  })
  .meta({ id: 'OperatorCheck' });

export const CHECK: RouteDescription = {
  tag: 'Operator',
  summary: 'Check',
  about: 'Checks the database, every engine and every payment rail, as `farebox check` does.',
  response: jsonResponse('Findings.', CheckResponse, {
    ok: true,
    findings: [{ what: 'database', state: 'ok', says: 'sqlite responds' }],
  }),
};
