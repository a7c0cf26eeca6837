/**
 * `/key/children`: INFERENCE keys that a key creates, for example for subagents. The spending of a child
 * counts for both keys; a child has no more rights than its parent and ends with it.
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
import { itemOf, listPage, sendCreated, settingsOf } from './api-keys.ts';
import { type KeySettings, createKey, withKnownModels } from './manage-keys.ts';

const PATH = '/key/children';
/** A key, its children and their children. */
const MAX_DEPTH = 3;

const CreateChildRequest = CreateKeyRequest.omit({ apiKeyType: true }).meta({
  id: 'CreateChildKeyRequest',
  examples: [{ description: 'helper', consumptionLimit: { usd: 1 }, expiresAt: '2027-01-31' }],
});

const LIST = { ...LIST_KEYS, summary: 'List the keys that this key has created' };

const CREATE: RouteDescription = {
  ...CREATE_KEY,
  summary: 'Create a child of this key',
  about:
    'An INFERENCE key for an agent, with at most the rights of its parent. Its spending counts for both keys; it expires no later than its parent, and is rejected when the parent is revoked or has expired. Children can create children. The secret is only in this response.',
  request: jsonContent(CreateChildRequest, {
    description: 'helper',
    consumptionLimit: { usd: 1 },
    expiresAt: '2027-01-31',
  }),
};

const REVOKE: RouteDescription = {
  ...DELETE_KEY,
  summary: 'Revoke a key that this key has created',
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
      const given = settingsOf({ ...request, apiKeyType: 'INFERENCE' }, parts.clock);
      const requested = withKnownModels(parts, given);
      const parent = await identity.findKey(caller.accountId, caller.keyId);
      if (parent === undefined) throw new Fault('AUTHENTICATION_FAILED_INACTIVE_KEY');
      const settings = await boundedBy(parts, caller, parent, requested);
      await sendCreated(context, await createKey(parts, caller, 'INFERENCE', settings));
    }),
    remove(PATH, 'key', REVOKE, async (context) => {
      const { id } = readQuery(context, DeleteKeyQuery);
      const { accountId, keyId } = context.caller;
      const key = await identity.findKey(accountId, id);
      if (key?.parentId !== keyId || !(await identity.revokeKey(accountId, id))) {
        throw new Fault('API_KEY_NOT_FOUND');
      }
      await ledger.holds.recall(accountId);
      await context.json(200, { success: true });
    }),
  ];
}

/** The requested settings within the rights of the parent. Throws 400 if they exceed them. */
async function boundedBy(
  { stores: { identity } }: AccountParts,
  caller: Caller,
  parent: ApiKey,
  requested: KeySettings,
): Promise<KeySettings> {
  const refuse = (path: string, message: string) =>
    refuseIssues([{ code: 'custom', path: [path], message }]);
  if ((await identity.keys.above(parent)).length + 1 >= MAX_DEPTH) {
    throw refuse('description', `Keys can have at most ${MAX_DEPTH} levels`);
  }
  if (Object.keys(caller.keyLimits).length > 0) {
    throw refuse('description', 'A key with its own rate limits cannot create keys');
  }
  const { expiresMs = parent.expiresMs, models = parent.models } = requested;
  if (parent.expiresMs !== undefined && (expiresMs ?? 0) > parent.expiresMs) {
    throw refuse('expiresAt', 'Must not be later than the expiry of the parent key');
  }
  const stranger = requested.models?.find((id) => parent.models?.includes(id) === false);
  if (stranger !== undefined) {
    throw refuse('models', `The parent key may not use "${stranger.slice(0, 100)}"`);
  }
  const isAll = requested.modelPrivacy === 'ALL';
  const modelPrivacy = isAll ? parent.modelPrivacy : requested.modelPrivacy;
  if (parent.modelPrivacy === 'PRIVATE_ONLY' && modelPrivacy !== 'PRIVATE_ONLY') {
    throw refuse('modelPrivacy', 'Must be PRIVATE_ONLY, as for the parent key');
  }
  return { ...requested, expiresMs, models, modelPrivacy, parentId: parent.id };
}
