import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a day is not changed while its year is typed', async () => {
  const part = await consolePart('parts/filters.tsx', 'Days');
  const changes: unknown[] = [];
  await part.show({ from: '', to: '', change: (change: unknown) => changes.push(change) });
  const [from] = document.querySelectorAll('input');
  // Browsers report the years 2, 20 and 202 while 2026 is typed.
  for (const value of ['0002-10-15', '0020-10-15', '0202-10-15', '2026-10-15', '']) {
    Object.assign(from ?? {}, { value });
    from?.dispatchEvent(new window.Event('change'));
  }
  assert.deepEqual(changes, [{ from: '2026-10-15' }, { from: '' }]);
});
