/** Webhooks of an account: what each tells, whether its last message arrived, and making one. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useEffect } from 'preact/hooks';
import { call, query } from '../api.ts';
import { CodeTabs } from '../parts/code.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { State, Time } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, LoadedTable } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { jsonSamples } from '../samples.ts';
import type { Delivery, Page, SecretWebhook, Webhook } from '../shapes.ts';
import {
  DeliveryState,
  ShownSecret,
  Tells,
  WebhookDrawer,
  deliveriesPath,
} from './webhook-drawer.tsx';
import { WebhookForm, withEvents } from './webhook-form.tsx';

export function Webhooks() {
  const { query: given, path, route } = useLocation();
  const { open } = given;
  const webhooks = useCall<{ data: readonly Webhook[] }>('/webhooks');
  const looks = useSignal(0);
  const isMaking = useSignal(false);
  const made = useSignal<SecretWebhook | undefined>(undefined);
  const show = ({ id }: Webhook): void => route(path + query({ open: id }));
  const shown = webhooks.data?.data.find(({ id }) => id === open);
  return (
    <>
      <PageHead
        title="Webhooks"
        lead="A signed message to an address of yours when a balance, a cap, a budget or a day comes to its threshold."
      >
        <button type="button" class="primary" onClick={() => (isMaking.value = true)}>
          Create a webhook
        </button>
      </PageHead>
      <LoadedTable
        label="Webhooks"
        from={webhooks}
        lines={3}
        empty={<FirstWebhook />}
        columns={columnsOf(show, looks.value)}
        keyOf={({ id }) => id}
        open={show}
      />
      {shown !== undefined && (
        <WebhookDrawer
          key={shown.id}
          webhook={shown}
          close={() => route(path, true)}
          changed={webhooks.reload}
          sent={() => (looks.value += 1)}
        />
      )}
      {isMaking.value && (
        <Overlay title="Create a webhook" close={() => (isMaking.value = false)}>
          <WebhookForm
            save={async (url, thresholds) => {
              const body = { url, ...withEvents(thresholds) };
              made.value = await call<SecretWebhook>('/webhooks', { method: 'POST', body });
              isMaking.value = false;
              webhooks.reload();
            }}
          />
        </Overlay>
      )}
      {made.value !== undefined && (
        <ShownSecret of={made.value} close={() => (made.value = undefined)} />
      )}
    </>
  );
}

function FirstWebhook() {
  const body = {
    url: 'https://hooks.example.com/farebox',
    events: ['balance.low'],
    thresholds: { balanceUsd: 5 },
  };
  return (
    <>
      <Empty title="There is no webhook yet">
        <p>
          Be told before the credit is gone: create one, try it with a test message, and see here
          what your address answered.
        </p>
      </Empty>
      <section>
        <h2>When the balance falls below 5 USD, by a program</h2>
        <CodeTabs samples={jsonSamples('/webhooks', body, 'ADMIN_KEY')} />
      </section>
    </>
  );
}

/** `looks`: grows when there may be a new message. */
function columnsOf(show: (webhook: Webhook) => void, looks: number): readonly Column<Webhook>[] {
  return [
    {
      name: 'Address',
      show: (webhook) => (
        <button type="button" class="link strong text" onClick={() => show(webhook)}>
          {webhook.url}
        </button>
      ),
    },
    { name: 'Tells', kind: 'wide', show: ({ thresholds }) => <Tells thresholds={thresholds} /> },
    {
      name: 'Last message',
      show: ({ id, paused }) => (
        <>
          {paused && <State value="paused" tone="warn" />}
          <LastMessage id={id} looks={looks} />
        </>
      ),
    },
    { name: 'Since', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
  ];
}

function LastMessage({ id, looks }: { id: string; looks: number }) {
  const { data, reload } = useCall<Page<Delivery>>(`${deliveriesPath(id)}?limit=1`);
  useEffect(() => {
    if (looks > 0) reload();
  }, [looks]);
  if (data === undefined) return null;
  const [last] = data.data;
  if (last === undefined) return <span class="soft">none yet</span>;
  return (
    <>
      <DeliveryState delivery={last} />
      <span class="under">
        <Time iso={last.createdAt} ago />
      </span>
    </>
  );
}
