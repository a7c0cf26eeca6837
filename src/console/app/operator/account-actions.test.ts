import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

const path = '/admin/accounts/a';
const account = {
  id: 'a',
  name: 'Old',
  plan: 'paid',
  disabled: false,
  balance: { dailyAllocation: '5' },
};

test('the settings of an account that the operator did not change are not sent', async () => {
  const part = await consolePart('operator/account-actions.tsx', 'Settings');
  const props = { path, plans: ['paid', 'pro'], changed: () => undefined };
  await part.show({ ...props, account });
  // Another operator has changed the plan meanwhile.
  await part.show({ ...props, account: { ...account, plan: 'pro' } });
  await part.type('Name', 'New');
  await part.press('Save');
  await part.type('Daily credit in USD', '7');
  await part.press('Save');
  await part.press('Save');
  assert.deepEqual(
    part.sent.map(({ method, body }) => [method, body]),
    [
      ['PATCH', { name: 'New' }],
      ['PATCH', { dailyDiem: 7 }],
    ],
  );
});
