/** What the operator's routes about the running service answer, and what they say of themselves. */
import { z } from 'zod';
import { cursorQuery, pageOf } from '../../http/cursor.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { JobState } from '../../video/job.ts';

const Time = z.string().describe('ISO 8601, UTC.');
const Count = z.number().int();
const Usd = z.string().describe('USD as decimal text.');

export type EnginesView = z.infer<typeof EnginesView>;
const EnginesView = z
  .object({
    process: z.string().describe('The process whose view it is: its host and its number.'),
    engines: z
      .array(
        z.object({
          id: z.string().describe('Name of the engine.'),
          source: z
            .enum(['configured', 'local'])
            .describe('Of the configuration, or of this machine.'),
          inFlight: Count.describe('Calls that run.'),
          queued: Count.describe('Calls that wait for a slot.'),
          connections: Count.describe('Open sockets.'),
          keepsAlive: z
            .boolean()
            .describe(
              'Whether connections serve more than one request; false since the engine sent bytes that belong to no request.',
            ),
          replicas: z
            .array(
              z.object({
                model: z.string().describe('As the engine names it.'),
                isHealthy: z.boolean().describe('Whether calls go to it now.'),
                breaker: z
                  .enum(['closed', 'open', 'half-open'])
                  .describe('open: taken out for a while.'),
                inFlight: Count.describe('Calls that run.'),
                calls: Count.describe('Since it is configured.'),
                failures: Count.describe('Of the calls.'),
                latencyMs: z
                  .number()
                  .nullable()
                  .describe('To the first byte, a moving average; null before the first answer.'),
              }),
            )
            .describe('Models that were called since the engine is configured.'),
        }),
      )
      .describe('Where models run.'),
    models: z
      .array(
        z.object({
          id: z.string().describe('Id of the model.'),
          type: z.string().describe('What it makes.'),
          isReady: z.boolean().describe('A call would be tried now.'),
          replicas: z
            .array(
              z.object({
                engine: z.string().describe('Name of the engine.'),
                model: z.string().describe('As the engine names it.'),
              }),
            )
            .describe('Where it runs.'),
        }),
      )
      .describe('What is offered.'),
  })
  .meta({ id: 'EnginesOfProcess' });

export type EnginesResponse = z.infer<typeof EnginesResponse>;
const EnginesResponse = z
  .object({
    ...EnginesView.shape,
    others: z
      .array(EnginesView)
      .describe(
        'The same of the other workers of this server; each has its own breakers and queues.',
      ),
  })
  .meta({ id: 'OperatorEngines' });

export const ENGINES: RouteDescription = {
  tag: 'Operator',
  summary: 'Engines and replicas',
  response: jsonResponse('Health and load now, as each process sees it.', EnginesResponse, {
    process: 'api-1/4711',
    engines: [
      {
        id: 'rack1',
        source: 'configured',
        inFlight: 2,
        queued: 0,
        connections: 4,
        keepsAlive: true,
        replicas: [
          {
            model: 'atlas-24b',
            isHealthy: true,
            breaker: 'closed',
            inFlight: 2,
            calls: 1200,
            failures: 3,
            latencyMs: 84,
          },
        ],
      },
    ],
    models: [
      {
        id: 'atlas-24b',
        type: 'text',
        isReady: true,
        replicas: [{ engine: 'rack1', model: 'atlas-24b' }],
      },
    ],
    others: [],
  }),
};

export const VideosQuery = z.object({
  state: JobState.optional().describe('Only jobs in this state.'),
  ...cursorQuery(),
});

export type VideosResponse = z.infer<typeof VideosResponse>;
const VideosResponse = pageOf(
  z
    .object({
      id: z.string().describe('The `queue_id`.'),
      accountId: z.string().describe('Who ordered it.'),
      keyId: z.string().nullable().describe('Null for a wallet.'),
      model: z.string().describe('Id of the model.'),
      state: JobState.describe('How far it is.'),
      quoteUsd: Usd,
      engine: z.string().nullable().describe('Where it was ordered.'),
      attempts: Count.describe('Orders that an engine took.'),
      progress: z.number().describe('0 to 1.'),
      createdAt: Time,
      startedAt: Time.nullable().describe('When an engine began; ISO 8601, UTC. Null before.'),
      finishedAt: Time.nullable().describe('When it was final; ISO 8601, UTC. Null before.'),
      executionMs: Count.describe('Milliseconds that the engine has worked on it.'),
      failure: z
        .object({
          code: z.string().describe('A word for programs, from the error catalogue.'),
          message: z.string().describe('A sentence for people.'),
        })
        .nullable()
        .describe('Why it failed; null otherwise.'),
      mediaBytes: Count.describe('Of the video, while it is kept.'),
    })
    .meta({ id: 'OperatorVideo' }),
);

export const VIDEOS: RouteDescription = {
  tag: 'Operator',
  summary: 'Video jobs',
  query: VideosQuery,
  response: jsonResponse('Jobs of every account, newest first.', VideosResponse, {
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
    .describe('`true`: only what waits for more than ten minutes, or is missing on its chain.'),
  ...cursorQuery(),
});

const TOP_UP = {
  paymentId: z.string().describe('Id of the payment.'),
  network: z.string().describe('CAIP-2.'),
  wallet: z.string().describe('The address that paid.'),
  amountUsd: Usd,
  state: TOP_UP_STATE.describe('How far it is.'),
  transaction: z
    .string()
    .nullable()
    .describe('Id of the transaction on the chain; null before it is sent.'),
  explorerUrl: z
    .string()
    .nullable()
    .describe('Where people look the transaction up; null where no explorer is known.'),
  failure: z.string().nullable().describe('Why it failed, or what the last look at it met.'),
  createdAt: Time,
  updatedAt: Time,
  isWatched: z
    .boolean()
    .describe('The chain could still undo the credit, or show a failed payment as paid.'),
  reversals: Count.describe('How often its chain took it back.'),
  isStuck: z.boolean().describe('Wants somebody to look.'),
};

export type TopUpAdminItem = z.infer<typeof TopUpAdminItem>;
const TopUpAdminItem = z.object(TOP_UP).meta({ id: 'OperatorTopUp' });

export type TopUpsResponse = z.infer<typeof TopUpsResponse>;
const TopUpsResponse = pageOf(TopUpAdminItem);

export const TOP_UPS: RouteDescription = {
  tag: 'Operator',
  summary: 'Payments',
  query: TopUpsQuery,
  response: jsonResponse('Payments of every wallet, newest first.', TopUpsResponse, {
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
      attempts: Count.describe('Looks at it so far.'),
      nextCheckAt: Time.describe('When it is looked at again.'),
      leaseUntil: Time.nullable().describe('A process works on it until then.'),
      startHeight: z.string().describe('Height of the chain when it was written down.'),
      creditedHeight: z
        .string()
        .nullable()
        .describe('Height of the block that carried it; null before.'),
      expiresAt: z
        .string()
        .describe('When the authorization ends: Unix seconds on Base, a block height on Solana.'),
      vanishedAt: Time.nullable().describe('Since when a credit is missing on the chain.'),
      payTo: z
        .string()
        .nullable()
        .describe('The address that was paid; null where it was not written down.'),
      asset: z
        .string()
        .nullable()
        .describe(
          'The contract, or on Solana the mint, of the token; null where it was not written down.',
        ),
      advice: z.string().describe('What happens next, and what a person can do.'),
    })
    .meta({ id: 'OperatorTopUpDetail' })
    .describe('The payment.'),
});

export const TOP_UP_DETAIL: RouteDescription = {
  tag: 'Operator',
  summary: 'Look into a payment',
  parameters: [
    { name: 'paymentId', in: 'path', about: 'Id of the payment.', example: 'x402-9f3c2a71' },
  ],
  response: jsonResponse('All that is known of it.', TopUpDetailResponse, {
    data: {
      paymentId: 'x402-9f3c2a71',
      network: 'eip155:8453',
      wallet: '0x2f3c0000000000000000000000000000000091ab',
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
      advice: 'The transaction is sent and not mined; it is looked at again by itself',
    },
  }),
  refusals: ['PAYMENT_NOT_FOUND'],
};

export type AuditResponse = z.infer<typeof AuditResponse>;
const AuditResponse = z
  .object({
    ok: z.boolean().describe('Every stored amount is the sum of its postings.'),
    accounts: Count.describe('Accounts that were recomputed.'),
    transfers: Count.describe('Postings that were read.'),
    openHolds: Count.describe(
      'Requests and jobs that have something set aside, of this process and in rows.',
    ),
    leasedUsd: Usd.describe(
      'What processes that share a PostgreSQL have leased for their requests; what of it they hold each process knows of its own.',
    ),
    owedUsd: Usd.describe('Owed to callers.'),
    debtsUsd: Usd.describe('Owed by callers after reversals.'),
    revenueUsd: Usd.describe('Charged since the beginning.'),
    differences: z
      .array(
        z.object({
          account: z.string().describe('The account of the ledger.'),
          what: z.string().describe('Which of its amounts.'),
          storedUsd: Usd,
          recomputedUsd: Usd,
        }),
      )
      .describe('What does not add up; empty when all is well.'),
  })
  .meta({ id: 'OperatorAudit' });

export const AUDIT: RouteDescription = {
  tag: 'Operator',
  summary: 'Audit',
  about:
    'Recomputes every balance from the postings, as `farebox audit` does. It reads every row and takes as long; who asks meanwhile gets the same answer.',
  response: jsonResponse('What the postings say.', AuditResponse, {
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

export type ConfigResponse = z.infer<typeof ConfigResponse>;
const ConfigResponse = z
  .object({
    yaml: z.string().describe('The settings in force as YAML, secrets masked.'),
    reload: z
      .object({
        ok: z.boolean().describe('The file can be taken over.'),
        changed: z.array(z.string()).describe('Sections that the file changes.'),
        restart: z.array(z.string()).describe('Of them, those that wait for a restart.'),
        problems: z.array(z.string()).describe('What is wrong with the file, with file and line.'),
      })
      .describe('What reading the files again would do now.'),
  })
  .meta({ id: 'OperatorConfig' });

export const CONFIG: RouteDescription = {
  tag: 'Operator',
  summary: 'Configuration in force',
  response: jsonResponse(
    'The settings, and what a reload would change.',
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
    ok: z.boolean().describe('Nothing is wrong.'),
    findings: z
      .array(
        z.object({
          what: z.string().describe('What was looked at.'),
          state: z.enum(['ok', 'note', 'wrong']).describe('note: worth knowing and not wrong.'),
          says: z.string().describe('A sentence for people.'),
        }),
      )
      .describe('What was looked at, in order.'),
  })
  .meta({ id: 'OperatorCheck' });

export const CHECK: RouteDescription = {
  tag: 'Operator',
  summary: 'Check',
  about: 'Asks the database, every engine and every payment rail, as `farebox check` does.',
  response: jsonResponse('What was found.', CheckResponse, {
    ok: true,
    findings: [{ what: 'database', state: 'ok', says: 'sqlite responds' }],
  }),
};
