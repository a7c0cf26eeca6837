/** Schemas and descriptions of `/admin/accounts`. Amounts are decimal text. */
import * as z from 'zod';
import { cursorQuery, pageOf } from '../../http/cursor.ts';
import { type RouteDescription, jsonResponse, jsonContent } from '../../http/describe.ts';
import { TransactionReference } from '../../http/transaction-reference.ts';
import { PlanName, PriceRules } from '../../config/config.ts';
import { Amount, DecimalText, Time } from '../api-key-schema.ts';
import { STORAGE, StorageItem } from '../account-parts.ts';

const MAX_NAME_CHARS = 100;
const MAX_NOTE_CHARS = 200;
const MAX_LIMIT = 1_000_000_000;

/** USD as a number, or as decimal text, which is exact. */
const AmountIn = z
  .union([
    Amount,
    z.string().regex(/^\d{1,9}(?:\.\d{1,9})?$/, 'Must be an amount such as 25 or 0.50'),
  ])
  .describe('USD as a number or decimal text, at most 9 decimals.');

const LIMIT_NAMES = [
  'requestsPerMinute',
  'tokensPerMinute',
  'rpcRequestsPerMinute',
  'rpcCreditsPerDay',
] as const;

function limitMembers<T extends z.ZodType>(member: T) {
  const about = {
    requestsPerMinute: 'Requests per minute to each model.',
    tokensPerMinute: 'Tokens per minute to each model.',
    rpcRequestsPerMinute: 'Blockchain RPC: requests per minute.',
    rpcCreditsPerDay: 'Blockchain RPC: credits per day.',
  };
  const entries = LIMIT_NAMES.map((name) => [name, member.describe(about[name])]);
  return Object.fromEntries(entries) as Record<(typeof LIMIT_NAMES)[number], T>; // one for each name
}

export type LimitsItem = z.infer<typeof LimitsItem>;
export const LimitsItem = z
  .object(limitMembers(z.number().int().nullable()))
  .describe('Limits of the account or key; null: the limit of the plan.');

export type LimitsChange = z.infer<typeof LimitsChange>;
export const LimitsChange = z
  .object(limitMembers(z.number().int().min(1).max(MAX_LIMIT).nullable().optional()))
  .describe('A missing member does not change; null sets the limit of the plan.');

export type AccountItem = z.infer<typeof AccountItem>;
export const AccountItem = z
  .object({
    id: z
      .string()
      .describe(
        'Id of the account; for a wallet `wallet:` and its address. Paths accept the address too.',
      ),
    name: z.string().describe('Unique name, such as an email address or the address of a wallet.'),
    plan: z.string().describe('The plan, which sets limits and prices.'),
    disabled: z.boolean().describe('Whether all requests of the account are rejected.'),
    isOperator: z.boolean().describe('Whether its ADMIN keys may use the routes of the operator.'),
    limits: LimitsItem,
    prices: z
      .record(z.string(), z.unknown())
      .nullable()
      .describe('Own prices of the account; null: the prices of the plan.'),
    createdAt: Time,
    balance: z
      .object({
        usd: DecimalText.describe('Posted USD.'),
        heldUsd: DecimalText.describe(
          'Holds of open jobs, and of open requests of the process that responds.',
        ),
        leasedUsd: DecimalText.describe(
          'Amounts that processes with a shared PostgreSQL have leased for requests, held or not.',
        ),
        availableUsd: DecimalText.describe('Posted USD without holds.'),
        debtUsd: DecimalText.describe('Debt after a reversed top-up.'),
        diem: DecimalText.describe("Rest of today's credit."),
        dailyAllocation: DecimalText.describe('Daily credit, allocated each day at 00:00 UTC.'),
      })
      .describe('Balance as decimal texts.'),
  })
  .meta({ id: 'Account' });

export const ACCOUNT: AccountItem = {
  id: 'acct_019aa3f1c0de',
  name: 'alice@example.com',
  plan: 'paid',
  disabled: false,
  isOperator: false,
  limits: {
    requestsPerMinute: null,
    tokensPerMinute: null,
    rpcRequestsPerMinute: null,
    rpcCreditsPerDay: null,
  },
  prices: null,
  createdAt: '2026-11-21T04:00:00.000Z',
  balance: {
    usd: '50.2300',
    heldUsd: '0.0000',
    leasedUsd: '0.0000',
    availableUsd: '50.2300',
    debtUsd: '0.0000',
    diem: '0.0000',
    dailyAllocation: '0.0000',
  },
};

export const AccountsQuery = z.object({
  search: z
    .string()
    .min(1)
    .max(100)
    .optional()
    .describe('Beginning of the id, or part of the name or of the wallet address.'),
  plan: PlanName.optional().describe('Only accounts of this plan.'),
  kind: z
    .enum(['account', 'wallet'])
    .optional()
    .describe('Only wallets, or only accounts that are no wallet.'),
  ...cursorQuery(),
});

export type AccountList = z.infer<typeof AccountList>;
const AccountList = pageOf(AccountItem);

export const ACCOUNT_PATH = [
  { name: 'id', in: 'path', about: 'Id of the account.', example: ACCOUNT.id },
] as const;

/** The description of an account's own route for the same route of the operator. */
export function ofAccount(
  description: RouteDescription,
  summary: string,
  parameters: RouteDescription['parameters'] = ACCOUNT_PATH,
): RouteDescription {
  const refusals = ['ACCOUNT_NOT_FOUND', ...(description.refusals ?? [])] as const;
  return { ...description, tag: 'Operator', summary, parameters, refusals };
}

export const LIST_ACCOUNTS: RouteDescription = {
  tag: 'Operator',
  summary: 'List accounts',
  query: AccountsQuery,
  response: jsonResponse('Accounts, newest first.', AccountList, {
    object: 'list',
    data: [ACCOUNT],
    nextCursor: null,
  }),
};

const Name = z
  .string()
  .trim()
  .min(1)
  .max(MAX_NAME_CHARS)
  .regex(/^[^\p{Cc}\p{Zl}\p{Zp}]*$/u, 'Must have no line ends and no control characters')
  .describe('Unique name, such as an email address.');

export const CreateAccountRequest = z
  .object({
    name: Name,
    plan: PlanName.optional().describe('Name of a plan. Default: paid.'),
    dailyDiem: AmountIn.optional().describe('Daily credit from 00:00 UTC; default: none.'),
    limits: LimitsChange.optional(),
  })
  .meta({ id: 'CreateAccountRequest' });

export const ChangeAccountRequest = z
  .object({
    name: Name.optional(),
    plan: PlanName.optional().describe('Name of the new plan.'),
    disabled: z.boolean().optional().describe('True rejects all requests of the account.'),
    dailyDiem: AmountIn.optional().describe('Daily credit; 0: none.'),
    limits: LimitsChange.optional(),
    prices: PriceRules.nullable()
      .optional()
      .describe('Own prices of the account, which replace the earlier ones; null removes them.'),
  })
  .describe('A missing member does not change.')
  .meta({ id: 'ChangeAccountRequest' });

export type AccountResponse = z.infer<typeof AccountResponse>;
const AccountResponse = z.object({
  data: AccountItem.extend({ storage: StorageItem })
    .meta({ id: 'AccountWithStorage' })
    .describe('The account.'),
});
export type ChangedAccount = z.infer<typeof ChangedAccount>;
const ChangedAccount = z.object({
  success: z.literal(true).describe('The account was created or changed.'),
  data: AccountItem.describe('The account.'),
});

export const CREATE_ACCOUNT: RouteDescription = {
  tag: 'Operator',
  summary: 'Create an account',
  about: 'The account has no credit and no key.',
  request: jsonContent(CreateAccountRequest, { name: ACCOUNT.name }),
  response: jsonResponse('The account.', ChangedAccount, { success: true, data: ACCOUNT }),
  refusals: ['ACCOUNT_EXISTS'],
};

export const GET_ACCOUNT: RouteDescription = {
  tag: 'Operator',
  summary: 'Get an account',
  parameters: ACCOUNT_PATH,
  response: jsonResponse('The account.', AccountResponse, {
    data: { ...ACCOUNT, storage: STORAGE },
  }),
  refusals: ['ACCOUNT_NOT_FOUND'],
};

export const CHANGE_ACCOUNT: RouteDescription = {
  tag: 'Operator',
  summary: 'Change an account',
  about: 'Other processes apply the change within three seconds.',
  parameters: ACCOUNT_PATH,
  request: jsonContent(ChangeAccountRequest, { plan: 'pro', limits: { requestsPerMinute: 500 } }),
  response: jsonResponse('The changed account.', ChangedAccount, { success: true, data: ACCOUNT }),
  refusals: ['ACCOUNT_NOT_FOUND', 'ACCOUNT_EXISTS'],
};

export const MoveRequest = z
  .object({
    amountUsd: AmountIn.describe('Above zero.'),
    reference: TransactionReference.describe(
      'Your own id of this transaction, such as the event id of a payment provider. A repeated reference with the same amount changes nothing and returns the same response; with another amount or account it is a 409.',
    ),
    note: z
      .string()
      .max(MAX_NOTE_CHARS)
      .optional()
      .describe('Shown in the statement of the account.'),
  })
  .meta({ id: 'MoveRequest' });

export type MoveResponse = z.infer<typeof MoveResponse>;
const MoveResponse = z
  .object({
    success: z.literal(true).describe('The transaction is posted.'),
    data: z
      .object({
        accountId: z.string().describe('Id of the account.'),
        reference: z.string().describe('Your id of the transaction.'),
        amountUsd: DecimalText.describe('Amount in USD.'),
        balanceUsd: DecimalText.describe('Balance after the transaction.'),
        createdAt: Time,
        isRepeat: z.boolean().describe('Whether the transaction was posted before.'),
      })
      .describe('The transaction.'),
  })
  .meta({ id: 'MoveAnswer' });

function movement(summary: string, about: string): RouteDescription {
  return {
    tag: 'Operator',
    summary,
    about,
    parameters: ACCOUNT_PATH,
    request: jsonContent(MoveRequest, { amountUsd: '25', reference: 'evt_1Q2w3E' }),
    response: jsonResponse('The transaction.', MoveResponse, {
      success: true,
      data: {
        accountId: ACCOUNT.id,
        reference: 'evt_1Q2w3E',
        amountUsd: '25.0000',
        balanceUsd: '75.2300',
        createdAt: '2026-11-21T04:00:00.000Z',
        isRepeat: false,
      },
    }),
    refusals: ['ACCOUNT_NOT_FOUND', 'REFERENCE_REUSED'],
  };
}

export const CREDIT_ACCOUNT = movement(
  'Credit an account',
  'Adds prepaid credit; repays debts first.',
);
const DEBIT = movement('Debit an account', 'Deducts posted credit without holds.');
export const DEBIT_ACCOUNT: RouteDescription = {
  ...DEBIT,
  refusals: [...(DEBIT.refusals ?? []), 'INSUFFICIENT_BALANCE'],
};
