/** What the routes of the operator about accounts say of themselves. Amounts are decimal text. */
import { z } from 'zod';
import { cursorQuery, pageOf } from '../../http/cursor.ts';
import { type RouteDescription, jsonResponse, jsonContent } from '../../http/describe.ts';
import { PLANS } from '../../identity/identity.ts';
import { Amount, DecimalText, Time } from '../api-key-schema.ts';
import { STORAGE, StorageItem } from '../account-parts.ts';

const MAX_NAME_CHARS = 100;
const MAX_NOTE_CHARS = 200;
const MAX_LIMIT = 1_000_000_000;

/** USD: a number, or decimal text for who would not have it rounded. */
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
    requestsPerMinute: 'Requests a minute to each model.',
    tokensPerMinute: 'Tokens a minute to each model.',
    rpcRequestsPerMinute: 'Blockchain RPC: requests a minute.',
    rpcCreditsPerDay: 'Blockchain RPC: credits a day.',
  };
  const entries = LIMIT_NAMES.map((name) => [name, member.describe(about[name])]);
  return Object.fromEntries(entries) as Record<(typeof LIMIT_NAMES)[number], T>; // one for each name
}

export type LimitsItem = z.infer<typeof LimitsItem>;
export const LimitsItem = z
  .object(limitMembers(z.number().int().nullable()))
  .describe('Limits of its own; null is that of the plan.');

export type LimitsChange = z.infer<typeof LimitsChange>;
export const LimitsChange = z
  .object(limitMembers(z.number().int().min(1).max(MAX_LIMIT).nullable().optional()))
  .describe('A missing member stays as it is; null takes the limit back to the plan.');

export type AccountItem = z.infer<typeof AccountItem>;
export const AccountItem = z
  .object({
    id: z
      .string()
      .describe(
        'Id of the account; of a wallet, `wallet:` and its address, which stand for it in paths.',
      ),
    name: z
      .string()
      .describe(
        'Its name, such as a mail address or that of a wallet; no two accounts have the same.',
      ),
    plan: z.enum(PLANS).describe('Its plan, which sets its limits.'),
    disabled: z.boolean().describe('Every request of its keys is refused.'),
    isOperator: z.boolean().describe('Its ADMIN keys run the service.'),
    limits: LimitsItem,
    createdAt: Time,
    balance: z
      .object({
        usd: DecimalText.describe('Posted USD.'),
        heldUsd: DecimalText.describe(
          'Of it, what open requests and jobs set aside; of several processes, requests of the one that answers.',
        ),
        leasedUsd: DecimalText.describe(
          'Of it, what processes that share a PostgreSQL have leased for its requests, held or not.',
        ),
        availableUsd: DecimalText.describe('What the next request can have.'),
        debtUsd: DecimalText.describe('What a reversed top-up left owing.'),
        diem: DecimalText.describe("What is left of today's credit."),
        dailyAllocation: DecimalText.describe('Daily credit that is given each day at 00:00 UTC.'),
      })
      .describe('What it has, as decimal texts.'),
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
    .describe('Beginning of the id, or part of the name or of the address of a wallet.'),
  plan: z.enum(PLANS).optional().describe('Only accounts of this plan.'),
  ...cursorQuery(),
});

export type AccountList = z.infer<typeof AccountList>;
const AccountList = pageOf(AccountItem);

export const ACCOUNT_PATH = [
  { name: 'id', in: 'path', about: 'Id of the account.', example: ACCOUNT.id },
] as const;

/** A route of an account about itself, as the operator's route about any account describes it. */
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
  .describe('Its name, such as a mail address; no two accounts have the same.');

export const CreateAccountRequest = z
  .object({
    name: Name,
    plan: z.enum(PLANS).optional().describe('Default paid.'),
    dailyDiem: AmountIn.optional().describe('Daily credit, anew at 00:00 UTC; default none.'),
    limits: LimitsChange.optional(),
  })
  .meta({ id: 'CreateAccountRequest' });

export const ChangeAccountRequest = z
  .object({
    name: Name.optional(),
    plan: z.enum(PLANS).optional().describe('The plan from now on.'),
    disabled: z.boolean().optional().describe('True refuses every request of its keys.'),
    dailyDiem: AmountIn.optional().describe('Daily credit; 0 for none.'),
    limits: LimitsChange.optional(),
  })
  .describe('A missing member stays as it is.')
  .meta({ id: 'ChangeAccountRequest' });

export type AccountResponse = z.infer<typeof AccountResponse>;
const AccountResponse = z.object({
  data: AccountItem.extend({ storage: StorageItem })
    .meta({ id: 'AccountWithStorage' })
    .describe('The account.'),
});
export type ChangedAccount = z.infer<typeof ChangedAccount>;
const ChangedAccount = z.object({
  success: z.literal(true).describe('It was made, or changed.'),
  data: AccountItem.describe('The account as it is now.'),
});

export const CREATE_ACCOUNT: RouteDescription = {
  tag: 'Operator',
  summary: 'Create an account',
  about: 'It has no credit and no key yet.',
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
  about: 'Other processes follow within three seconds.',
  parameters: ACCOUNT_PATH,
  request: jsonContent(ChangeAccountRequest, { plan: 'pro', limits: { requestsPerMinute: 500 } }),
  response: jsonResponse('The account as it is now.', ChangedAccount, {
    success: true,
    data: ACCOUNT,
  }),
  refusals: ['ACCOUNT_NOT_FOUND', 'ACCOUNT_EXISTS'],
};

export const MoveRequest = z
  .object({
    amountUsd: AmountIn.describe('Above zero.'),
    reference: z
      .string()
      .regex(/^[A-Za-z0-9._:-]{1,100}$/, 'Must be 1 to 100 letters, digits, dots, colons or dashes')
      .describe(
        "Your own name of this movement, such as the id of a payment provider's event. Repeated with the same amount it changes nothing and gets the same answer, for ever; with another amount or account it is a 409.",
      ),
    note: z.string().max(MAX_NOTE_CHARS).optional().describe('Shown in the account’s statement.'),
  })
  .meta({ id: 'MoveRequest' });

export type MoveResponse = z.infer<typeof MoveResponse>;
const MoveResponse = z
  .object({
    success: z.literal(true).describe('The movement stands.'),
    data: z
      .object({
        accountId: z.string().describe('The account whose balance it moved.'),
        reference: z.string().describe('Your name of the movement.'),
        amountUsd: DecimalText.describe('What was moved, in USD.'),
        balanceUsd: DecimalText.describe('The balance right after the movement.'),
        createdAt: Time,
        isRepeat: z.boolean().describe('The movement was made before; nothing was changed now.'),
      })
      .describe('The movement.'),
  })
  .meta({ id: 'MoveAnswer' });

function movement(summary: string, about: string): RouteDescription {
  return {
    tag: 'Operator',
    summary,
    about,
    parameters: ACCOUNT_PATH,
    request: jsonContent(MoveRequest, { amountUsd: '25', reference: 'evt_1Q2w3E' }),
    response: jsonResponse('The movement, now or before.', MoveResponse, {
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
  'Adds prepaid credit, its debts first.',
);
const DEBIT = movement('Debit an account', 'Takes back what is posted and not held.');
export const DEBIT_ACCOUNT: RouteDescription = {
  ...DEBIT,
  refusals: [...(DEBIT.refusals ?? []), 'INSUFFICIENT_BALANCE'],
};
