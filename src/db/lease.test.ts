import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { Leases, STORE_MIGRATIONS } from './db.ts';

onEachStore('leases', (fixture) => {
  test('one of several concurrent processes gets a lease, and renews it by taking it again', async () => {
    const store = await fixture.open(STORE_MIGRATIONS);
    const clock = new TestClock();
    const takers = Array.from({ length: 8 }, (_, at) => {
      return new Leases({ store, clock, holder: `process ${at}` });
    });
    const answers = await Promise.all(takers.map((taker) => taker.take('prune', 1_000)));
    assert.equal(answers.filter(Boolean).length, 1);
    const winner = takers[answers.indexOf(true)];
    clock.advance(900);
    assert.equal(await winner?.take('prune', 1_000), true);
    clock.advance(900);
    assert.equal(await takers.find((taker) => taker !== winner)?.take('prune', 1_000), false);
  });

  test('a lease from before the clock was set back is taken over, but not one of a clock that is ahead', async () => {
    const store = await fixture.open(STORE_MIGRATIONS);
    const clock = new TestClock();
    const first = new Leases({ store, clock, holder: 'first' });
    const second = new Leases({ store, clock, holder: 'second' });
    assert.equal(await first.take('prune', 1_000), true);
    clock.setWallBack(30_000);
    assert.equal(await second.take('prune', 1_000), false);
    clock.setWallBack(600_000);
    assert.equal(await second.take('prune', 1_000), true);
  });

  test('a lease is taken over after it has expired or was released', async () => {
    const store = await fixture.open(STORE_MIGRATIONS);
    const clock = new TestClock();
    const first = new Leases({ store, clock, holder: 'first' });
    const second = new Leases({ store, clock, holder: 'second' });
    assert.equal(await first.take('prune', 1_000), true);
    clock.advance(1_000);
    assert.equal(await second.take('prune', 1_000), true);
    assert.equal(await first.take('prune', 1_000), false);
    await first.release('prune');
    assert.equal(await first.take('prune', 1_000), false);
    await second.release('prune');
    assert.equal(await first.take('prune', 1_000), true);
  });
});
