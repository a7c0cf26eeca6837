import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a secret that is shown once is not lost by a click beside the dialog', async () => {
  const part = await consolePart('parts/shown-once.tsx', 'ShownOnce');
  let isClosed = false;
  const close = (): void => {
    isClosed = true;
  };
  await part.show({ title: 'The key was created', secret: 'secret', about: 'Copy it', close });
  await part.pressOutside();
  assert.equal(isClosed, false);
  await part.press('I have copied it');
  assert.equal(isClosed, true);
});
