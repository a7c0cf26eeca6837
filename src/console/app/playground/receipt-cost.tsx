/** What a request cost, read from its receipt, where the answer is a file and cannot say it. */
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { useResource } from '../resource.ts';
import type { Receipt } from '../shapes.ts';

export function ReceiptCost({ requestId }: { requestId: string }) {
  const receipt = useResource(requestId === '' ? undefined : `cost ${requestId}`, (signal) =>
    call<Receipt>(`/usage/${requestId}`, { signal }),
  );
  const { data } = receipt;
  if (data === undefined) return null;
  return (
    <a href={`/console/activity?open=${requestId}`}>{usdText(data.cost.usd + data.cost.diem)}</a>
  );
}
