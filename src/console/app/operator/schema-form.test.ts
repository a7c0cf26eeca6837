import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a text of the configuration keeps the space at its end while it is typed', async () => {
  const part = await consolePart('operator/schema-form.tsx', 'SchemaField');
  let value: unknown;
  const onChange = async (next: unknown): Promise<void> => {
    value = next;
    await part.show({ name: 'title', schema: { type: 'string' }, value, onChange });
  };
  await onChange('Farebox');
  await part.type('title', 'My ');
  assert.equal(document.querySelector('input')?.value, 'My ');
  assert.equal(value, 'My');
  await part.type('title', ' ');
  assert.equal(value, undefined);
});
