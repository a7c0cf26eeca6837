import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('the server chooses the first day of the books, because older postings may be deleted', async () => {
  const part = await consolePart('operator/books.tsx', 'Books');
  const sums = { owedBeforeUsd: '1', owedUsd: '2', entries: 0, sums: [], gas: [] };
  part.respond = () => ({ from: '2027-01-12', to: '2027-01-31', ...sums });
  await part.show({});
  const [request] = part.sent;
  assert.match(request?.path ?? '', /^\/admin\/books\?to=\d{4}-\d\d-\d\d$/);
  const [from] = [...document.querySelectorAll('input')].map(({ value }) => value);
  assert.equal(from, '2027-01-12');
});
