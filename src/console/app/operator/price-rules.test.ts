import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a new rule for prices keeps the rules that another operator has added', async () => {
  const part = await consolePart('operator/price-rules.tsx', 'PriceRules');
  const kinds = { text: { discountPercent: '20' } };
  const account = { id: 'a', name: 'A', prices: undefined };
  part.respond = () => ({ data: { ...account, prices: { kinds } } });
  await part.show({ account, path: '/admin/accounts/a', changed: () => undefined, sold: [] });
  await part.type('Discount in percent', '10');
  await part.press('Save');
  const [body] = part.sent.flatMap((one) => (one.method === 'PATCH' ? [one.body] : []));
  assert.deepEqual(body, { prices: { discountPercent: '10', kinds } });
});
