/** The committed bytecode is what the committed source compiles to. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compileContracts, readFixture, sourceHash } from './compile.ts';

test('the bytecode of the test contracts is that of their source', () => {
  const fixture = readFixture();
  assert.equal(fixture.sourceSha256, sourceHash());
  assert.deepEqual(compileContracts(), fixture);
});
