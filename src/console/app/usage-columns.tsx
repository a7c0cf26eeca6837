/** Columns of usage sums. */
import { countText, roughCount } from './format.ts';
import { type Column, figure } from './parts/table.tsx';
import { CountOf } from './parts/values.tsx';
import type { Sums } from './shapes.ts';

export function usageColumns<T extends Omit<Sums, 'cost'>>(): Column<T>[] {
  return [
    figure('Requests', ({ requests }) => countText(requests)),
    figure('Errors', ({ errors, requests }) => <CountOf part={errors} whole={requests} />, 'wide'),
    figure('Tokens in', ({ promptTokens }) => roughCount(promptTokens), 'wide'),
    figure('Tokens out', ({ completionTokens }) => roughCount(completionTokens), 'wide'),
  ];
}
