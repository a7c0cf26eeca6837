/**
 * `/key/children`: INFERENCE keys that a key makes, for example for helpers of an agent. A child
 * counts in the caps of both, has no more rights than its parent, and ends with it.
 */
import { Fault } from '../core/faults.ts';
import { type RouteDescription, jsonContent } from '../http/describe.ts';
import { readBody, readQuery } from '../http/read-request.ts';
import { type Route, get, post, remove } from '../http/route.ts';
import type { ApiKey, Caller } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { AccountParts } from './account-parts.ts';
import {
  CREATE_KEY,
  CreateKeyRequest,
  DELETE_KEY,
  DeleteKeyQuery,
  LIST_KEYS,
} from './api-key-schema.ts';
import { answerCreated, itemOf, listPage, settingsOf } from './api-keys.ts';
import { type KeySettings, createKey } from './manage-keys.ts';

const PATH = '/key/children';
/** A key, its children, and theirs. */
const MAX_DEPTH = 3;

const CreateChildRequest = CreateKeyRequest.omit({ apiKeyType: true }).meta({
  id: 'CreateChildKeyRequest',
  examples: [{ description: 'helper', consumptionLimit: { usd: 1 }, expiresAt: '2027-01-31' }],
});

const LIST = { ...LIST_KEYS, summary: 'List the keys that this key has made' };

const CREATE: RouteDescription = {
  ...CREATE_KEY,
  summary: 'Make a key below this one',
  about:
    'For an agent or a helper: an INFERENCE key that may no more than the key that makes it. What it spends counts in the caps of both, it expires no later, and it is refused once the key above it is revoked or has expired. Children can have children. The secret is in this answer and nowhere else.',
  request: jsonContent(CreateChildRequest, {
    description: 'helper',
    consumptionLimit: { usd: 1 },
    expiresAt: '2027-01-31',
  }),
};

const REVOKE: RouteDescription = {
  ...DELETE_KEY,
  summary: 'Revoke a key that this key has made',
  about: 'All keys below it are revoked with it.',
};

export function childKeyRoutes(parts: AccountParts): Route[] {
  const { identity, ledger } = parts.stores;
  return [
    get(PATH, 'key', LIST, async (context) => {
      const { accountId, keyId } = context.caller;
      const reports = await listPage(parts, context, accountId, { parentId: keyId });
      await context.json(200, { object: 'list', data: reports.map(itemOf) });
    }),
    post(PATH, 'key', CREATE, async (context) => {
      const { caller } = context;
      const request = readBody(context, CreateChildRequest);
      const asked = settingsOf({ ...request, apiKeyType: 'INFERENCE' }, parts.clock);
      const parent = await identity.findKey(caller.accountId, caller.keyId);
      if (parent === undefined) throw new Fault('AUTHENTICATION_FAILED_INACTIVE_KEY');
      const settings = await boundedBy(parts, caller, parent, asked);
      await answerCreated(context, await createKey(parts, caller, 'INFERENCE', settings));
    }),
    remove(PATH, 'key', REVOKE, async (context) => {
      const { id } = readQuery(context, DeleteKeyQuery);
      const { accountId, keyId } = context.caller;
      const key = await identity.findKey(accountId, id);
      if (key?.parentId !== keyId || !(await identity.revokeKey(accountId, id))) {
        throw new Fault('API_KEY_NOT_FOUND');
      }
      await ledger.recall(accountId);
      await context.json(200, { success: true });
    }),
  ];
}

/**
 * What was asked for, with what the parent bounds. Throws 400 for what is more than the parent may.
 */
async function boundedBy(
  { stores: { identity } }: AccountParts,
  caller: Caller,
  parent: ApiKey,
  asked: KeySettings,
): Promise<KeySettings> {
  const refuse = (path: string, message: string) =>
    refuseIssues([{ code: 'custom', path: [path], message }]);
  if ((await identity.keys.above(parent)).length + 1 >= MAX_DEPTH) {
    throw refuse('description', `Keys stand below each other ${MAX_DEPTH} deep at most`);
  }
  if (Object.keys(caller.keyLimits).length > 0) {
    throw refuse('description', 'A key with rate limits of its own makes no keys');
  }
  const { expiresMs = parent.expiresMs, models = parent.models } = asked;
  if (parent.expiresMs !== undefined && (expiresMs ?? 0) > parent.expiresMs) {
    throw refuse('expiresAt', 'Must not be later than the expiry of the key that makes it');
  }
  const stranger = asked.models?.find((id) => parent.models?.includes(id) === false);
  if (stranger !== undefined) {
    throw refuse('models', `The key that makes it may not use "${stranger.slice(0, 100)}"`);
  }
  const isAll = asked.modelPrivacy === 'ALL';
  const modelPrivacy = isAll ? parent.modelPrivacy : asked.modelPrivacy;
  if (parent.modelPrivacy === 'PRIVATE_ONLY' && modelPrivacy !== 'PRIVATE_ONLY') {
    throw refuse('modelPrivacy', 'The key that makes it may use private models only');
  }
  return { ...asked, expiresMs, models, modelPrivacy, parentId: parent.id };
}
