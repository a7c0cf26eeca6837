/** The webhooks page: conditions and last message of each webhook, and creating one. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { jsonSamples } from '../code-samples.ts';
import { CodeTabs } from '../parts/code.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { OpenButton, State, Time } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, LoadedTable } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { Delivery, List, Page, SecretWebhook, Webhook } from '../shapes.ts';
import {
  Conditions,
  DeliveryState,
  ShownSecret,
  WebhookDrawer,
  deliveriesPath,
} from './webhook-drawer.tsx';
import { WebhookForm, withEvents } from './webhook-form.tsx';

export function Webhooks() {
  const { open, show, close } = useAddress();
  const webhooks = useCall<List<Webhook>>('/webhooks');
  const tests = useSignal(0);
  const created = useSignal<SecretWebhook | undefined>(undefined);
  const shown = webhooks.data?.data.find(({ id }) => id === open);
  return (
    <>
      <PageHead
        title="Webhooks"
        lead="Messages to your URL or email address when a balance, spend limit, budget or daily spending reaches a threshold."
      >
        <DialogButton label="Create a webhook" class="primary">
          {(closeDialog) => (
            <Overlay title="Create a webhook" close={closeDialog}>
              <WebhookForm
                save={async ({ url, thresholds }) => {
                  const body = { url, ...withEvents(thresholds) };
                  created.value = await call<SecretWebhook>('/webhooks', { method: 'POST', body });
                  closeDialog();
                  webhooks.reload();
                }}
              />
            </Overlay>
          )}
        </DialogButton>
      </PageHead>
      <LoadedTable
        label="Webhooks"
        from={webhooks}
        empty={<FirstWebhook />}
        columns={columnsOf(show, tests.value)}
        keyOf={({ id }) => id}
        open={({ id }) => show(id)}
      />
      {shown !== undefined && (
        <WebhookDrawer
          key={shown.id}
          webhook={shown}
          close={close}
          changed={webhooks.reload}
          sent={() => (tests.value += 1)}
        />
      )}
      {created.value !== undefined && (
        <ShownSecret webhook={created.value} close={() => (created.value = undefined)} />
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
      <Empty title="No webhooks yet">
        <p>
          A webhook notifies you before the credit is used up. Create one, send a test message, and
          see the response of your server here.
        </p>
      </Empty>
      <section>
        <h2>Example: notify when the balance falls below 5 USD</h2>
        <CodeTabs samples={jsonSamples('/webhooks', body, 'ADMIN_KEY')} />
      </section>
    </>
  );
}

/** `tests`: the number of test messages, which reloads the last message. */
function columnsOf(show: (id: string) => void, tests: number): readonly Column<Webhook>[] {
  return [
    {
      name: 'URL',
      show: ({ id, url }) => (
        <OpenButton isStrong open={() => show(id)}>
          {url}
        </OpenButton>
      ),
    },
    {
      name: 'Sends at',
      kind: 'wide',
      show: ({ thresholds }) => <Conditions thresholds={thresholds} />,
    },
    {
      name: 'Last message',
      show: ({ id, paused }) => (
        <>
          {paused && <State value="paused" />}
          <LastMessage id={id} tests={tests} />
        </>
      ),
    },
    { name: 'Created', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
  ];
}

function LastMessage({ id, tests }: { id: string; tests: number }) {
  const { data, reload } = useCall<Page<Delivery>>(`${deliveriesPath(id)}?limit=1`);
  useEffect(() => {
    if (tests > 0) reload();
  }, [tests]);
  if (data === undefined) return null;
  const [last] = data.data;
  if (last === undefined) return <span class="soft">none</span>;
  return (
    <>
      <DeliveryState delivery={last} />
      <span class="under">
        <Time iso={last.createdAt} ago />
      </span>
    </>
  );
}
