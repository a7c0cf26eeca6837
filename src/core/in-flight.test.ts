import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { InFlight } from './in-flight.ts';

test('`InFlight` has the same items as a set after any adds and deletes', () => {
  const step = fc.record({ isEntering: fc.boolean(), index: fc.nat({ max: 9 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const items = Array.from({ length: 10 }, (_, id) => ({ id, place: -1 }));
      const list = new InFlight<(typeof items)[number]>();
      const model = new Set<number>();
      for (const { isEntering, index } of steps) {
        const item = items[index]!;
        if (isEntering && !model.has(index)) {
          list.add(item);
          model.add(index);
        } else if (!isEntering) {
          list.delete(item);
          model.delete(index);
        }
        const held = list.all().map(({ id }) => id);
        assert.deepEqual(new Set(held), model);
        assert.equal(held.length, model.size);
        assert.equal(list.size, model.size);
      }
    }),
  );
});

test('items may be removed during iteration', () => {
  const list = new InFlight<{ place: number }>();
  for (let at = 0; at < 5; at += 1) list.add({ place: -1 });
  for (const item of list.all()) list.delete(item);
  assert.equal(list.size, 0);
});
