/** Columns of usage sums. */
import { countText, percentText, roughCount } from './format.ts';
import { type Column, figure } from './parts/table.tsx';
import type { Sums } from './shapes.ts';

export function usageColumns<T extends Omit<Sums, 'cost'>>(): Column<T>[] {
  return [
    figure('Requests', ({ requests }) => countText(requests)),
    figure(
      'Errors',
      ({ errors, requests }) => (
        <>
          {countText(errors)}
          <span class="soft share">{errors > 0 && percentText(errors, requests)}</span>
        </>
      ),
      'wide',
    ),
    figure('Tokens in', ({ promptTokens }) => roughCount(promptTokens), 'wide'),
    figure('Tokens out', ({ completionTokens }) => roughCount(completionTokens), 'wide'),
  ];
}
