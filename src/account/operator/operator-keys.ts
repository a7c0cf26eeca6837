/** `/admin/accounts/{id}/keys`: the keys of an account, for the operator. */
import { isoTimeOrNull } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { readBody, readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, SMALL_JSON_BODY, get, remove } from '../../http/route.ts';
import type { AccountParts } from '../account-parts.ts';
import { changeOf, createdBody, itemOf, listPage, settingsOf } from '../api-keys.ts';
import { type KeyReport, makeKey, reportKeys, updateKey, withKnownModels } from '../manage-keys.ts';
import { accountOf, changedLimits, keepResponse, limitsItem } from './operator-accounts.ts';
import {
  CHANGE_ACCOUNT_KEY,
  CREATE_ACCOUNT_KEY,
  ChangeAccountKeyRequest,
  CreateAccountKeyRequest,
  type CreatedAccountKey,
  LIST_ACCOUNT_KEYS,
  type OperatorKey,
  OperatorKeysQuery,
  REVOKE_ACCOUNT_KEY,
} from './operator-keys-schema.ts';

const PATH = '/admin/accounts/:id/keys';

export function operatorKeyRoutes(parts: AccountParts): Route[] {
  const { identity } = parts.stores;
  const common = { auth: 'operator', body: SMALL_JSON_BODY } as const;
  return [
    get(PATH, 'operator', LIST_ACCOUNT_KEYS, async (context) => {
      const { revoked } = readQuery(context, OperatorKeysQuery);
      const { id } = await accountOf(parts, context);
      const reports = await listPage(parts, context, id, { revoked: revoked === 'true' });
      await context.json(200, { object: 'list', data: reports.map(operatorItem) });
    }),
    {
      ...common,
      method: 'POST',
      path: PATH,
      describe: CREATE_ACCOUNT_KEY,
      keepsResponse: true,
      handle: (context) => createKey(parts, context),
    },
    {
      ...common,
      method: 'PATCH',
      path: `${PATH}/:keyId`,
      describe: CHANGE_ACCOUNT_KEY,
      handle: (context) => changeKey(parts, context),
    },
    remove(`${PATH}/:keyId`, 'operator', REVOKE_ACCOUNT_KEY, async (context) => {
      const { id } = await accountOf(parts, context);
      const isRevoked = await identity.revokeKey(id, context.parameters['keyId'] ?? '');
      if (!isRevoked) throw new Fault('API_KEY_NOT_FOUND');
      await parts.stores.ledger.holds.recall(id);
      await context.json(200, { success: true });
    }),
  ];
}

function operatorItem(report: KeyReport): OperatorKey {
  const { limits, revokedMs } = report.key;
  return {
    ...itemOf(report),
    limits: limitsItem(limits),
    revokedAt: isoTimeOrNull(revokedMs),
  };
}

async function createKey(parts: AccountParts, context: RequestContext): Promise<void> {
  const request = readBody(context, CreateAccountKeyRequest);
  const settings = withKnownModels(parts, settingsOf(request, parts.clock));
  const { id: accountId } = await accountOf(parts, context);
  const kind = request.apiKeyType;
  const limits = changedLimits({}, request.limits);
  const body = await parts.stores.store.transaction(async (tx) => {
    const { key, secret } = await makeKey(parts, tx, { ...settings, kind, accountId, limits });
    const response = createdBody(key, secret);
    const data = { ...response.data, apiKey: null };
    await keepResponse(context, { ...response, data } satisfies CreatedAccountKey, tx);
    return response;
  });
  context.keeper?.kept();
  context.set('cache-control', 'no-store');
  await context.json(200, body);
}

async function changeKey(parts: AccountParts, context: RequestContext): Promise<void> {
  const { limits, ...request } = readBody(context, ChangeAccountKeyRequest);
  const { id } = await accountOf(parts, context);
  const change = changeOf(request, parts.clock);
  const changed = await updateKey(parts, id, context.parameters['keyId'] ?? '', (key) => ({
    ...change(key),
    limits: changedLimits(key.limits, limits),
  }));
  if (changed === undefined) throw new Fault('API_KEY_NOT_FOUND');
  const [data] = await reportKeys(parts, id, [changed]);
  await context.json(200, { success: true, data: data && operatorItem(data) });
}
