/** `/api_keys`: list, make, change, revoke, get. For ADMIN keys; each sees its own account only. */
import type { KeyReport, KeyWish, ManageKeys } from '../manage-keys.ts';
import type { ApiKey } from '../../identity/identity.ts';
import { type Clock, isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, decimalUsd, toUsdNumber, usdToNano } from '../../core/money.ts';
import { refuseIssues } from '../../json/validation.ts';
import { offsetOf, pageHeaders, readBody, readQuery } from '../../http/read-request.ts';
import { type Route, SMALL_JSON_BODY } from '../../http/route.ts';
import { CREATE_KEY, DELETE_KEY, GET_KEY, LIST_KEYS, UPDATE_KEY } from './describe.ts';
import {
  type ApiKeyItem,
  CreateKeyRequest,
  type CreatedKeyAnswer,
  DeleteKeyQuery,
  ListKeysQuery,
  UpdateKeyRequest,
} from './schema.ts';

export interface ApiKeyRouteParts {
  readonly keys: ManageKeys;
  readonly clock: Clock;
}

export function apiKeyRoutes(parts: ApiKeyRouteParts): Route[] {
  return [list(parts), create(parts), update(parts), remove(parts), get(parts)];
}

function list({ keys }: ApiKeyRouteParts): Route {
  return {
    method: 'GET',
    path: '/api_keys',
    auth: 'admin',
    describe: LIST_KEYS,
    handle: async (context) => {
      const page = readQuery(context, ListKeysQuery);
      const all = await keys.list(context.caller);
      const shown = all.slice(offsetOf(page), offsetOf(page) + page.limit);
      const reports = await keys.report(context.caller.accountId, shown);
      context.setAll(pageHeaders(page, all.length));
      await context.json(200, { object: 'list', data: reports.map(itemOf) });
    },
  };
}

function create({ keys, clock }: ApiKeyRouteParts): Route {
  return {
    method: 'POST',
    path: '/api_keys',
    auth: 'admin',
    describe: CREATE_KEY,
    body: SMALL_JSON_BODY,
    handle: async (context) => {
      const request = readBody(context, CreateKeyRequest);
      const made = await keys.create(context.caller, request.apiKeyType, wishOf(request, clock));
      context.setAll(made.headers);
      // The answer carries a secret: nothing on the way may keep it.
      context.set('cache-control', 'no-store');
      await context.json(200, createdBody(made.key, made.secret));
    },
  };
}

function update({ keys, clock }: ApiKeyRouteParts): Route {
  return {
    method: 'PATCH',
    path: '/api_keys',
    auth: 'admin',
    describe: UPDATE_KEY,
    body: SMALL_JSON_BODY,
    handle: async (context) => {
      const request = readBody(context, UpdateKeyRequest);
      const { expiresAt } = request;
      // Checked before anything is read: a wrong date is wrong for every key.
      const expiresMs = expiresAt === undefined ? undefined : expiryOf(expiresAt, clock);
      const report = await keys.update(context.caller, request.id, (key) => ({
        description: request.description ?? key.description,
        expiresMs: expiresAt === undefined ? key.expiresMs : expiresMs,
        limitPeriod: request.limitPeriod ?? key.limitPeriod,
        usdLimitNano: changedLimit(request.consumptionLimit, 'usd', key.usdLimitNano),
        diemLimitNano: changedLimit(request.consumptionLimit, 'diem', key.diemLimitNano),
        modelPrivacy: request.modelPrivacy ?? key.modelPrivacy,
        models: request.models === undefined ? key.models : (request.models ?? undefined),
      }));
      if (report === undefined) throw unknownKey();
      await context.json(200, { success: true, data: itemOf(report) });
    },
  };
}

function remove({ keys }: ApiKeyRouteParts): Route {
  return {
    method: 'DELETE',
    path: '/api_keys',
    auth: 'admin',
    describe: DELETE_KEY,
    handle: async (context) => {
      const { id } = readQuery(context, DeleteKeyQuery);
      if (!(await keys.revoke(context.caller, id))) throw unknownKey();
      await context.json(200, { success: true });
    },
  };
}

function get({ keys }: ApiKeyRouteParts): Route {
  return {
    method: 'GET',
    path: '/api_keys/:id',
    auth: 'admin',
    describe: GET_KEY,
    handle: async (context) => {
      const report = await keys.find(context.caller, context.parameters['id'] ?? '');
      if (report === undefined) throw unknownKey();
      await context.json(200, { data: itemOf(report) });
    },
  };
}

/** decisions.md 6: an unknown id is a 400; a revoked key and another account's are unknown. */
function unknownKey(): Fault {
  return new Fault('API_KEY_NOT_FOUND');
}

/** What a creation asks for. Throws 400 for an expiry in the past. */
export function wishOf(request: CreateKeyRequest, clock: Clock): KeyWish {
  return {
    description: request.description,
    expiresMs: expiryOf(request.expiresAt, clock),
    limitPeriod: request.limitPeriod ?? 'EPOCH',
    usdLimitNano: limitOf(request.consumptionLimit?.usd),
    diemLimitNano: limitOf(request.consumptionLimit?.diem),
    modelPrivacy: request.modelPrivacy ?? 'ALL',
    models: request.models ?? undefined,
  };
}

function expiryOf(text: string | null | undefined, clock: Clock): number | undefined {
  if (text === undefined || text === null || text === '') return undefined;
  const ms = Date.parse(text);
  if (ms <= clock.nowMs()) {
    const message = 'Must be in the future';
    throw refuseIssues([{ code: 'custom', path: ['expiresAt'], message }]);
  }
  return ms;
}

function limitOf(amount: number | null | undefined): Nano | undefined {
  return amount === undefined || amount === null ? undefined : usdToNano(amount);
}

function changedLimit(
  change: UpdateKeyRequest['consumptionLimit'],
  currency: 'usd' | 'diem',
  before: Nano | undefined,
): Nano | undefined {
  if (change === undefined) return before;
  if (change === null) return undefined;
  return change[currency] === undefined ? before : limitOf(change[currency]);
}

/** The answer that carries the secret, once. */
export function createdBody(key: ApiKey, secret: string): CreatedKeyAnswer {
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
      expiresAt: timeOf(key.expiresMs),
    },
  };
}

function itemOf({ key, trailingSevenDays, currentPeriod }: KeyReport): ApiKeyItem {
  return {
    id: key.id,
    apiKeyType: key.kind,
    description: key.description,
    createdAt: isoTime(key.createdMs),
    expiresAt: timeOf(key.expiresMs),
    lastUsedAt: timeOf(key.lastUsedMs),
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

function timeOf(ms: number | undefined): string | null {
  return ms === undefined ? null : isoTime(ms);
}
