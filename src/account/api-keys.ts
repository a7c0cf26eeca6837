/**
 * `/api_keys` for ADMIN keys: list, create, change, revoke and get the keys of the account; and
 * `/api_keys/generate_web3_key`: a wallet signs a token and gets a key for its credit.
 */
import { type Clock, isoTime, isoTimeOrNull } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, decimalUsd, toUsdNumber, usdToNano } from '../core/money.ts';
import { limitRequests } from '../http/limit-requests.ts';
import { offsetOf, pageHeaders, readBody, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get, post, patch, remove } from '../http/route.ts';
import { type ApiKey, type Caller, type KeyKind, walletCaller } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import { type Payments, requirePayments } from '../payments/payments.ts';
import type { AccountParts } from './account-parts.ts';
import {
  type ApiKeyItem,
  CREATE_KEY,
  CREATE_WALLET_KEY,
  CreateKeyRequest,
  type CreatedKeyResponse,
  CreateWalletKeyRequest,
  DELETE_KEY,
  DeleteKeyQuery,
  GET_KEY,
  KEY_CHALLENGE,
  LIST_KEYS,
  ListKeysQuery,
  UPDATE_KEY,
  UpdateKeyRequest,
  WALLET_KEY,
} from './api-key-schema.ts';
import {
  type CreatedKey,
  type KeyReport,
  type KeySettings,
  createKey,
  reportKeys,
  updateKey,
  withKnownModels,
} from './manage-keys.ts';

const PATH = '/api_keys';
const WALLET_PATH = '/api_keys/generate_web3_key';

export function apiKeyRoutes(parts: AccountParts, payments: Payments | undefined): Route[] {
  const { identity } = parts.stores;
  return [
    get(PATH, 'admin', LIST_KEYS, async (context) => {
      const reports = await listPage(parts, context, context.caller.accountId);
      await context.json(200, { object: 'list', data: reports.map(itemOf) });
    }),
    post(PATH, 'admin', CREATE_KEY, async (context) => {
      const request = readBody(context, CreateKeyRequest);
      requireKeyRight(context.caller, request.apiKeyType);
      const settings = withKnownModels(parts, settingsOf(request, parts.clock));
      const { wallet } = context.caller;
      if (wallet !== undefined) await identity.openWalletAccount(wallet);
      const created = await createKey(parts, context.caller, request.apiKeyType, settings);
      await sendCreated(context, created);
    }),
    patch(PATH, 'admin', UPDATE_KEY, async (context) => {
      const { id, ...request } = readBody(context, UpdateKeyRequest);
      const change = changeOf(request, parts.clock);
      await requireRightOf(parts, context.caller, id);
      const changed = await updateKey(parts, context.caller.accountId, id, change);
      await context.json(200, { success: true, data: await reportOf(parts, changed) });
    }),
    remove(PATH, 'admin', DELETE_KEY, async (context) => {
      const { id } = readQuery(context, DeleteKeyQuery);
      await requireRightOf(parts, context.caller, id);
      const isRevoked = await identity.revokeKey(context.caller.accountId, id);
      if (!isRevoked) throw new Fault('API_KEY_NOT_FOUND');
      // Other processes release their leases of its cap.
      await parts.stores.ledger.holds.recall(context.caller.accountId);
      await context.json(200, { success: true });
    }),
    get(`${PATH}/:id`, 'admin', GET_KEY, async (context) => {
      const key = await identity.findKey(context.caller.accountId, context.parameters['id'] ?? '');
      await context.json(200, { data: await reportOf(parts, key) });
    }),
    ...walletKeyRoutes(parts, payments),
  ];
}

/** Throws 403 for an ADMIN key and a member that is no owner: the key would have more rights. */
function requireKeyRight(caller: Caller, kind: KeyKind): void {
  const { member } = caller;
  if (kind !== 'ADMIN' || member === undefined || member.role === 'owner') return;
  throw new Fault('MEMBER_ROLE_REQUIRED', {
    message: `The role ${member.role} does not allow ADMIN keys; an owner can create and change them`,
  });
}

async function requireRightOf(parts: AccountParts, caller: Caller, id: string): Promise<void> {
  if (caller.member === undefined) return;
  const key = await parts.stores.identity.findKey(caller.accountId, id);
  if (key !== undefined) requireKeyRight(caller, key.kind);
}

function walletKeyRoutes(parts: AccountParts, given: Payments | undefined): Route[] {
  return [
    get(WALLET_PATH, 'public', KEY_CHALLENGE, async (context) => {
      const token = requirePayments(given).keyChallenges.mint();
      context.set('cache-control', 'no-store');
      await context.json(200, { success: true, data: { token } });
    }),
    post(WALLET_PATH, 'public', CREATE_WALLET_KEY, async (context) => {
      const payments = requirePayments(given);
      const request = readBody(context, CreateWalletKeyRequest);
      const description = request.description ?? WALLET_KEY;
      const settings = settingsOf({ ...request, description }, parts.clock);
      // Wallets are free, and each one can add an account and a key to the database.
      const { keysPerMinute } = parts.config.current.limits;
      await limitRequests(parts, `wallet-key|${context.countedAddress}`, keysPerMinute);
      const wallet = await payments.keyChallenges.signerOf(request, context.countedAddress);
      await parts.stores.identity.openWalletAccount(wallet);
      const caller = walletCaller(wallet);
      const known = withKnownModels(parts, settings);
      const created = await createKey(parts, caller, request.apiKeyType, known);
      await sendCreated(context, created);
    }),
  ];
}

/** The requested page of keys; sets its headers. */
export async function listPage(
  parts: AccountParts,
  context: RequestContext,
  accountId: string,
  wanted: { readonly revoked?: boolean; readonly parentId?: string } = {},
): Promise<KeyReport[]> {
  const { identity } = parts.stores;
  const { limit, page } = readQuery(context, ListKeysQuery);
  const offset = offsetOf({ limit, page });
  const keys = await identity.listKeys(accountId, wanted, { limit, offset });
  context.setAll(pageHeaders({ limit, page }, await identity.countKeys(accountId, wanted)));
  return reportKeys(parts, accountId, keys);
}

/** The settings of a new key. Throws 400 for an expiry in the past. */
export function settingsOf(request: CreateKeyRequest, clock: Clock): KeySettings {
  return {
    description: request.description,
    expiresMs: expiryOf(request.expiresAt, clock),
    limitPeriod: request.limitPeriod ?? 'EPOCH',
    usdLimitNano: limitOf(request.consumptionLimit?.usd),
    diemLimitNano: limitOf(request.consumptionLimit?.diem),
    modelPrivacy: request.modelPrivacy ?? 'ALL',
    models: request.models ?? undefined,
    limits: {},
  };
}

function expiryOf(text: string | null | undefined, clock: Clock): number | undefined {
  if (text === undefined || text === null || text === '') return undefined;
  const ms = Date.parse(text);
  if (ms > clock.nowMs()) return ms;
  const message = 'Must be in the future';
  throw refuseIssues([{ code: 'custom', path: ['expiresAt'], message }]);
}

function limitOf(amount: number | null | undefined): Nano | undefined {
  return amount === undefined || amount === null ? undefined : usdToNano(amount);
}

/** The settings of a key after a change. Throws 400 for an expiry in the past. */
export function changeOf(
  request: Omit<UpdateKeyRequest, 'id'>,
  clock: Clock,
): (key: ApiKey) => KeySettings {
  const { expiresAt, consumptionLimit } = request;
  const expiresMs = expiryOf(expiresAt, clock);
  const limit = (currency: 'usd' | 'diem', before: Nano | undefined): Nano | undefined => {
    if (consumptionLimit === null) return undefined;
    const amount = consumptionLimit?.[currency];
    return amount === undefined ? before : limitOf(amount);
  };
  return (key) => ({
    description: request.description ?? key.description,
    expiresMs: expiresAt === undefined ? key.expiresMs : expiresMs,
    limitPeriod: request.limitPeriod ?? key.limitPeriod,
    usdLimitNano: limit('usd', key.usdLimitNano),
    diemLimitNano: limit('diem', key.diemLimitNano),
    modelPrivacy: request.modelPrivacy ?? key.modelPrivacy,
    models: request.models === undefined ? key.models : (request.models ?? undefined),
    limits: key.limits,
  });
}

/** Throws 400 without a key. */
export async function reportOf(parts: AccountParts, key: ApiKey | undefined): Promise<ApiKeyItem> {
  const [report] = key === undefined ? [] : await reportKeys(parts, key.accountId, [key]);
  if (report === undefined) throw new Fault('API_KEY_NOT_FOUND');
  return itemOf(report);
}

export async function sendCreated(
  context: RequestContext,
  { key, secret, headers }: CreatedKey,
): Promise<void> {
  context.setAll(headers);
  context.set('cache-control', 'no-store');
  await context.json(200, createdBody(key, secret));
}

export function createdBody(key: ApiKey, secret: string): CreatedKeyResponse {
  return {
    success: true,
    data: {
      id: key.id,
      apiKey: secret,
      apiKeyType: key.kind,
      description: key.description,
      consumptionLimit: limitsOf(key),
      limitPeriod: key.limitPeriod,
      modelPrivacy: key.modelPrivacy,
      models: modelsOf(key),
      expiresAt: isoTimeOrNull(key.expiresMs),
    },
  };
}

export function itemOf({ key, trailingSevenDays, currentPeriod }: KeyReport): ApiKeyItem {
  return {
    id: key.id,
    apiKeyType: key.kind,
    description: key.description,
    parentId: key.parentId ?? null,
    createdAt: isoTime(key.createdMs),
    expiresAt: isoTimeOrNull(key.expiresMs),
    lastUsedAt: isoTimeOrNull(key.lastUsedMs),
    last6Chars: key.last6,
    consumptionLimits: limitsOf(key),
    limitPeriod: key.limitPeriod,
    modelPrivacy: key.modelPrivacy,
    models: modelsOf(key),
    usage: {
      trailingSevenDays: {
        usd: decimalUsd(trailingSevenDays.usdNano),
        vcu: decimalUsd(0n),
        diem: decimalUsd(trailingSevenDays.diemNano),
      },
    },
    currentPeriodUsage: {
      usd: decimalUsd(currentPeriod.usdNano),
      diem: decimalUsd(currentPeriod.diemNano),
    },
  };
}

function limitsOf(key: ApiKey): ApiKeyItem['consumptionLimits'] {
  return {
    usd: key.usdLimitNano === undefined ? null : toUsdNumber(key.usdLimitNano),
    diem: key.diemLimitNano === undefined ? null : toUsdNumber(key.diemLimitNano),
    vcu: null,
  };
}

function modelsOf(key: ApiKey): string[] | null {
  return key.models === undefined ? null : [...key.models];
}
