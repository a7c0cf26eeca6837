import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

const usage = { usd: '0', diem: '0' };
const key = {
  id: 'k1',
  description: 'Production',
  last6Chars: 'abcdef',
  apiKeyType: 'INFERENCE',
  consumptionLimits: { usd: null, diem: null },
  currentPeriodUsage: usage,
  limitPeriod: 'MONTH',
  revokedAt: null,
};

test('a key of a customer is revoked only after a confirmation', async () => {
  const part = await consolePart('operator/account-drawer.tsx', 'AccountDrawer', ['own']);
  part.respond = ({ path, method }) => {
    if (method === 'DELETE') return {};
    if (path.endsWith('/keys')) return { data: [key] };
    if (path.endsWith('/budgets') || path.includes('/requests')) return { data: [] };
    return new Response('', { status: 404 });
  };
  const revoked = () => part.sent.filter(({ method }) => method === 'DELETE');
  await part.show({ id: 'a', close: () => undefined, changed: () => undefined });
  await part.press('Revoke');
  assert.deepEqual(revoked(), []);
  await part.press('Cancel');
  await part.press('Revoke');
  await part.press('Revoke');
  const paths = new Set(revoked().map(({ path }) => path));
  assert.deepEqual([...paths], ['/admin/accounts/a/keys/k1']);
});

test('a key is created once although the response is lost', async () => {
  const part = await consolePart('operator/account-drawer.tsx', 'AccountDrawer', ['own']);
  const responses = [502, 200, 400, 200].map((status) =>
    Response.json({ data: { apiKey: 'secret', description: 'New' } }, { status }),
  );
  part.respond = ({ path, method }) => {
    if (method === 'POST') return responses.shift();
    if (path.endsWith('/keys') || path.endsWith('/budgets')) return { data: [] };
    return path.includes('/requests') ? { data: [] } : new Response('', { status: 404 });
  };
  await part.show({ id: 'a', close: () => undefined, changed: () => undefined });
  const create = async (description: string, ...presses: readonly 'Create'[]): Promise<void> => {
    await part.press('Create a key');
    await part.type('Description', description);
    for (const label of presses) await part.press(label);
  };
  await create('New', 'Create', 'Create');
  await part.press('I have copied it');
  await create('New', 'Create', 'Create');
  const keys = part.sent
    .filter(({ method }) => method === 'POST')
    .map(({ headers }) => headers.get('idempotency-key') ?? '');
  const [lost, replayed, rejected, next] = keys;
  assert.match(lost ?? '', /^[\w-]{16,}$/);
  assert.equal(replayed, lost);
  assert.equal(new Set([lost, rejected, next]).size, 3, String(keys));
});
