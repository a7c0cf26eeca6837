/** Payment by card: the amount, the way to the page of the provider, and the state after the return. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { balance } from '../live.ts';
import { toast } from '../parts/announce.tsx';
import { ActionForm, AmountChoice, useAction } from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { SafeLink } from '../parts/values.tsx';
import { useCall, useInterval } from '../resource.ts';
import type { Checkout, CreatedCheckout } from '../shapes.ts';

const AMOUNTS = [10, 25, 50, 100];
const USUAL = '25';
const POLL_MS = 2_000;

export function CardPanel({ label }: { label: string }) {
  const { query, path, route } = useLocation();
  const { checkout } = query;
  return (
    <section class="top-up">
      {checkout === undefined ? (
        <DialogButton label={label} class="primary">
          {(close) => <CardWindow close={close} />}
        </DialogButton>
      ) : (
        <Returned id={checkout} close={() => route(path, true)} />
      )}
    </section>
  );
}

function CardWindow({ close }: { close: () => void }) {
  const amount = useSignal(USUAL);
  const isSaved = useSignal(false);
  const action = useAction();
  const pay = (): void =>
    void action.run(async () => {
      const body = { amountUsd: Number(amount.value), saveCard: isSaved.value };
      const { url } = await call<CreatedCheckout>('/billing/checkout', { method: 'POST', body });
      location.assign(url);
    });
  return (
    <Overlay title="Add credit" close={close}>
      <ActionForm action={action} submit={pay} label="Continue to payment">
        <AmountChoice
          amounts={AMOUNTS}
          hint="Taxes are added on the next page, if the operator charges them."
          value={amount.value}
          onInput={(text) => (amount.value = text)}
        />
        <label class="check">
          <input
            type="checkbox"
            checked={isSaved.value}
            onChange={(event) => (isSaved.value = event.currentTarget.checked)}
          />
          <span>Save the card for automatic top-ups</span>
        </label>
        <p class="soft">
          You pay on a page of the payment provider. This service never sees the number of your
          card.
        </p>
      </ActionForm>
    </Overlay>
  );
}

/** The state of a payment after the payer has returned from the page of the provider. */
function Returned({ id, close }: { id: string; close: () => void }) {
  const checkout = useCall<Checkout>(`/billing/checkout/${encodeURIComponent(id)}`);
  const { data, error } = checkout;
  const { status = 'open' } = data ?? {};
  const isWaiting = error === undefined && (status === 'open' || status === 'processing');
  const now = balance.value?.balances.usd;
  useInterval(isWaiting ? POLL_MS : undefined, checkout.reload);
  // The balance changes as soon as the payment is credited.
  useEffect(checkout.reload, [now]);
  useEffect(() => {
    if (status === 'paid') toast('The payment was credited');
  }, [status]);
  return (
    <div class={`progress ${status === 'paid' ? 'credited' : isWaiting ? '' : 'failed'}`}>
      <p class="title" role="status">
        {error === undefined ? TITLES[status] : error.message}
        {status === 'paid' && data !== undefined && `: ${usdText(data.amountUsd)}`}
      </p>
      {status === 'open' && error === undefined && (
        <p class="soft">
          Waiting for the payment provider. You can close this page; a payment is credited in any
          case.
        </p>
      )}
      {data?.failure != null && <p class="text">{data.failure}</p>}
      <p class="row">
        {data?.receiptUrl != null && <SafeLink href={data.receiptUrl}>Receipt</SafeLink>}
        <button type="button" class="small" onClick={close}>
          Close
        </button>
      </p>
    </div>
  );
}

const TITLES: Readonly<Record<Checkout['status'], string>> = {
  open: 'Waiting for the payment',
  processing: 'The bank confirms the payment; this can take days',
  paid: 'Credited',
  failed: 'The payment failed',
  expired: 'The page has expired without a payment',
};
