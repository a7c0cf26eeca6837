/** Makes the plan of a failing run shorter, as long as the run still fails. */
import type { Plan } from './plan.ts';

/** Whether a run of this plan shows the defect. */
export type Fails = (plan: Plan) => Promise<boolean>;

/**
 * Leaves out faults and callers, halves first and then one by one, and ends the run earlier. Returns the
 * shortest plan that was found.
 */
export async function shrink(plan: Plan, fails: Fails): Promise<Plan> {
  let shortest = plan;
  const attempt = async (shorter: Plan): Promise<boolean> => {
    if (!(await fails(shorter))) return false;
    shortest = shorter;
    return true;
  };
  while (shortest.durationMs > 1_000) {
    const durationMs = Math.ceil(shortest.durationMs / 2);
    const faults = shortest.faults.filter(({ atMs }) => atMs < durationMs);
    if (!(await attempt({ ...shortest, durationMs, faults }))) break;
  }
  for (const member of ['faults', 'callers'] as const) {
    let size = Math.ceil(shortest[member].length / 2);
    while (size >= 1) {
      let at = 0;
      while (at < shortest[member].length) {
        const list: readonly unknown[] = shortest[member];
        const without = [...list.slice(0, at), ...list.slice(at + size)];
        if (!(await attempt({ ...shortest, [member]: without }))) at += size;
      }
      size = size === 1 ? 0 : Math.ceil(size / 2);
    }
  }
  return shortest;
}
