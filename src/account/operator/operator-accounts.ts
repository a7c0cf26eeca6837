/** `/admin/accounts`: accounts with plan, limits and credit, for the operator. */
import type { OperatorMove } from '../../billing/ledger/ledger.ts';
import { type PriceRules, priceRuleProblems } from '../../config/config.ts';
import { walletKind } from '../../core/addresses.ts';
import { isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { ZERO, decimalUsd, usdToNano } from '../../core/money.ts';
import { timePage } from '../../http/cursor.ts';
import { readBody, readQuery } from '../../http/read-request.ts';
import { referenceReused } from '../../http/transaction-reference.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_TYPE, type Route, SMALL_JSON_BODY, get, patch, post } from '../../http/route.ts';
import {
  type Account,
  type LimitOverrides,
  accountIdOf,
  walletOfAccount,
} from '../../identity/identity.ts';
import { refuseIssues } from '../../json/validation.ts';
import type { Queryable } from '../../db/db.ts';
import { type AccountParts, storageOf } from '../account-parts.ts';
import { sendActivity, sendDays } from '../activity.ts';
import { sendStatement } from '../statement.ts';
import {
  type AccountResponse,
  type AccountItem,
  type AccountList,
  AccountsQuery,
  CHANGE_ACCOUNT,
  CREATE_ACCOUNT,
  CREDIT_ACCOUNT,
  ChangeAccountRequest,
  type ChangedAccount,
  CreateAccountRequest,
  DEBIT_ACCOUNT,
  GET_ACCOUNT,
  LIST_ACCOUNTS,
  type LimitsChange,
  type LimitsItem,
  type MoveResponse,
  MoveRequest,
} from './operator-accounts-schema.ts';
import { ACCOUNT_DAYS, ACCOUNT_REQUESTS, ACCOUNT_STATEMENT } from './operator-usage-schema.ts';

const PATH = '/admin/accounts';

type Funds = Awaited<ReturnType<AccountParts['stores']['ledger']['funds']>>;
/** Funds of a new account. */
const NO_FUNDS = {
  usdNano: ZERO,
  heldUsdNano: ZERO,
  leasedUsdNano: ZERO,
  heldDiemNano: ZERO,
  debtNano: ZERO,
} as const;

export function operatorAccountRoutes(parts: AccountParts): Route[] {
  return [
    get(PATH, 'operator', LIST_ACCOUNTS, (context) => listAccounts(parts, context)),
    {
      method: 'POST',
      path: PATH,
      auth: 'operator',
      describe: CREATE_ACCOUNT,
      body: SMALL_JSON_BODY,
      keepsResponse: true,
      handle: (context) => createAccount(parts, context),
    },
    get(`${PATH}/:id`, 'operator', GET_ACCOUNT, async (context) => {
      const account = await accountOf(parts, context);
      const item = await itemOf(parts, account);
      const data = { ...item, storage: await storageOf(parts, account.id) };
      await context.json(200, { data } satisfies AccountResponse);
    }),
    patch(`${PATH}/:id`, 'operator', CHANGE_ACCOUNT, (context) => changeAccount(parts, context)),
    ...(['credit', 'debit'] as const).map((direction): Route =>
      post(
        `${PATH}/:id/${direction}`,
        'operator',
        direction === 'credit' ? CREDIT_ACCOUNT : DEBIT_ACCOUNT,
        (context) => move(parts, context, direction),
      ),
    ),
    get(`${PATH}/:id/statement`, 'operator', ACCOUNT_STATEMENT, async (context) =>
      sendStatement(parts, context, (await accountOf(parts, context)).id),
    ),
    get(`${PATH}/:id/requests`, 'operator', ACCOUNT_REQUESTS, async (context) =>
      sendActivity(parts, context, await scopeOf(parts, context)),
    ),
    get(`${PATH}/:id/days`, 'operator', ACCOUNT_DAYS, async (context) =>
      sendDays(parts, context, await scopeOf(parts, context)),
    ),
  ];
}

async function scopeOf(parts: AccountParts, context: RequestContext) {
  const { id } = await accountOf(parts, context);
  return { accountId: id, keyId: context.query.get('key') ?? undefined };
}

/** The account of the path, which is an id or the address of a wallet. Throws 404. */
export async function accountOf(
  { stores }: AccountParts,
  { parameters }: RequestContext,
): Promise<Account> {
  const account = await stores.identity.findAccount(accountIdOf(parameters['id'] ?? ''));
  if (account !== undefined) return account;
  throw new Fault('ACCOUNT_NOT_FOUND');
}

/** As `accountOf`, and opens an account for a new wallet. */
async function openedAccountOf(parts: AccountParts, context: RequestContext): Promise<Account> {
  const wallet = walletOfAccount(accountIdOf(context.parameters['id'] ?? ''));
  if (wallet !== undefined && walletKind(wallet) !== undefined) {
    const { identity, ledger, store } = parts.stores;
    await store.transaction(async (tx) =>
      ledger.openAccount(await identity.openWalletAccount(wallet, tx), tx),
    );
  }
  return accountOf(parts, context);
}

async function listAccounts(parts: AccountParts, context: RequestContext): Promise<void> {
  const { search, plan, kind, ...part } = readQuery(context, AccountsQuery);
  const { identity } = parts.stores;
  const { rows, nextCursor } = await timePage(part, 'id', (wanted) =>
    identity.searchAccounts({ search, plan, kind }, wanted),
  );
  const data = await Promise.all(rows.map((account) => itemOf(parts, account)));
  const body: AccountList = { object: 'list', data, nextCursor };
  await context.json(200, body);
}

async function itemOf({ stores }: AccountParts, account: Account): Promise<AccountItem> {
  return itemWith(account, await stores.ledger.funds(account.id));
}

function itemWith(account: Account, funds: Funds): AccountItem {
  const { usdNano, heldUsdNano, leasedUsdNano, debtNano, diemNano, allocationNano } = funds;
  return {
    id: account.id,
    name: account.name,
    plan: account.plan,
    disabled: account.disabled,
    isOperator: account.isOperator,
    limits: limitsItem(account.limits),
    prices: account.prices ?? null,
    createdAt: isoTime(account.createdMs),
    balance: {
      usd: decimalUsd(usdNano),
      heldUsd: decimalUsd(heldUsdNano),
      leasedUsd: decimalUsd(leasedUsdNano),
      availableUsd: decimalUsd(usdNano - heldUsdNano),
      debtUsd: decimalUsd(debtNano),
      diem: decimalUsd(diemNano),
      dailyAllocation: decimalUsd(allocationNano),
    },
  };
}

export function limitsItem(limits: LimitOverrides): LimitsItem {
  return {
    requestsPerMinute: limits.requestsPerMinute ?? null,
    tokensPerMinute: limits.tokensPerMinute ?? null,
    rpcRequestsPerMinute: limits.rpcRequestsPerMinute ?? null,
    rpcCreditsPerDay: limits.rpcCreditsPerDay ?? null,
  };
}

export function changedLimits(
  before: LimitOverrides,
  change: LimitsChange | undefined,
): LimitOverrides {
  const after = Object.entries({ ...before, ...change }).filter(
    ([, limit]) => limit !== null && limit !== undefined,
  );
  return Object.fromEntries(after);
}

/** Throws 400 for a plan that does not exist. */
function requirePlan({ config }: AccountParts, name: string | undefined): void {
  const { byName } = config.current.resolvedPlans;
  if (name === undefined || byName.has(name)) return;
  const message = `There is no plan "${name}"; the plans are ${[...byName.keys()].join(', ')}`;
  throw refuseIssues([{ code: 'custom', path: ['plan'], message }]);
}

/** Throws 400 for prices that do not fit their model. */
function requirePrices({ catalog }: AccountParts, prices: PriceRules): void {
  const unknown = Object.keys(prices.models ?? {}).flatMap((id) =>
    catalog.get(id) === undefined
      ? [{ path: ['models', id], message: 'There is no such model' }]
      : [],
  );
  const problems = [...unknown, ...priceRuleProblems(prices, (id) => catalog.get(id))];
  if (problems.length === 0) return;
  throw refuseIssues(
    problems.map(({ path, message }) => ({
      code: 'custom',
      path: ['prices', ...path],
      message,
    })),
  );
}

async function createAccount(parts: AccountParts, context: RequestContext): Promise<void> {
  const { name, plan = 'paid', dailyDiem, limits } = readBody(context, CreateAccountRequest);
  requirePlan(parts, plan);
  const { store, identity, ledger } = parts.stores;
  const { keeper } = context;
  const body = await store.transaction(async (tx) => {
    const created = await identity.createNamedAccount(name, plan, tx);
    const account = { ...created, limits: changedLimits({}, limits) };
    if (limits !== undefined) await identity.updateAccount(account, tx);
    await ledger.openAccount(account.id, tx);
    const dailyNano = dailyDiem === undefined ? ZERO : usdToNano(dailyDiem);
    if (dailyNano > 0n) await ledger.allocateDailyIn(tx, account.id, dailyNano);
    const item = itemWith(account, { ...NO_FUNDS, diemNano: dailyNano, allocationNano: dailyNano });
    const response = { success: true, data: item } satisfies ChangedAccount;
    await keepResponse(context, response, tx);
    return response;
  });
  keeper?.kept();
  await context.json(200, body);
}

/** Stores a response for retries of its request, in the transaction of the change. */
export async function keepResponse(
  { keeper }: RequestContext,
  response: unknown,
  tx: Queryable,
): Promise<void> {
  if (keeper === undefined) return;
  const body = Buffer.from(JSON.stringify(response));
  await keeper.keep(tx, { type: JSON_TYPE, body });
}

async function changeAccount(parts: AccountParts, context: RequestContext): Promise<void> {
  const change = readBody(context, ChangeAccountRequest);
  requirePlan(parts, change.plan);
  if (change.prices) requirePrices(parts, change.prices);
  const { id } = await openedAccountOf(parts, context);
  if (change.disabled === true && id === context.caller.accountId) {
    const message = 'Must not disable the account of this request';
    throw refuseIssues([{ code: 'custom', path: ['disabled'], message }]);
  }
  const { store, identity, ledger } = parts.stores;
  const account = await store.transaction(async (tx) => {
    // A sign-in locks the names before the account too; the opposite order would be a deadlock.
    if (change.name !== undefined) await identity.requireFreeName(change.name, id, tx);
    await identity.lockAccount(id, tx);
    const before = await identity.findAccount(id, tx);
    if (before === undefined) throw new Fault('ACCOUNT_NOT_FOUND');
    const after: Account = {
      ...before,
      name: change.name ?? before.name,
      plan: change.plan ?? before.plan,
      disabled: change.disabled ?? before.disabled,
      limits: changedLimits(before.limits, change.limits),
      prices: change.prices === undefined ? before.prices : (change.prices ?? undefined),
    };
    await identity.updateAccount(after, tx);
    if (change.dailyDiem !== undefined) {
      await ledger.allocateDailyIn(tx, id, usdToNano(change.dailyDiem));
    }
    return after;
  });
  identity.forget();
  await context.json(200, { success: true, data: await itemOf(parts, account) });
}

async function move(
  parts: AccountParts,
  context: RequestContext,
  direction: OperatorMove['direction'],
): Promise<void> {
  const { amountUsd, reference, note } = readBody(context, MoveRequest);
  const amountNano = usdToNano(amountUsd);
  if (amountNano <= 0n) {
    const message = 'Must be above zero';
    throw refuseIssues([{ code: 'custom', path: ['amountUsd'], message }]);
  }
  const find = direction === 'credit' ? openedAccountOf : accountOf;
  const { id: accountId } = await find(parts, context);
  const { ledger } = parts.stores;
  const result = await ledger.moveOnce({ direction, accountId, amountNano, reference, note });
  if (result.state === 'reused') {
    throw referenceReused(reference, { kind: direction, ...result.was });
  }
  if (result.state === 'insufficient') {
    const { usdNano, heldUsdNano } = await ledger.funds(accountId);
    throw new Fault('INSUFFICIENT_BALANCE', {
      message: `The account has ${decimalUsd(usdNano - heldUsdNano)} USD without holds; debit at most this amount`,
    });
  }
  const body: MoveResponse = {
    success: true,
    data: {
      accountId,
      reference,
      amountUsd: decimalUsd(amountNano),
      balanceUsd: decimalUsd(result.balanceNano),
      createdAt: isoTime(result.createdMs),
      isRepeat: result.state === 'repeated',
    },
  };
  await context.json(200, body);
}
