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
