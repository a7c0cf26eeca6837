/** One webhook: what it tells, its secret, and what became of its messages; and what is done to it. */
import { useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { useCursorList } from '../cursor-list.ts';
import { toast } from '../parts/announce.tsx';
import { CodeBlock } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { Refusal, useAction } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Facts, Id, State, Time } from '../parts/values.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, CursorTable } from '../parts/table.tsx';
import type { Delivery, SecretWebhook, Thresholds, Webhook } from '../shapes.ts';
import { WebhookForm } from './webhook-form.tsx';

/** What it is told of, each in a line. */
export function Tells({ thresholds }: { thresholds: Thresholds }) {
  const { balanceUsd, keyLimitPercent, budgetPercent, dailySpendUsd } = thresholds;
  const lines = [
    balanceUsd !== null && `balance below ${usdText(balanceUsd)}`,
    keyLimitPercent !== null && `a key's cap at ${keyLimitPercent} %`,
    budgetPercent !== null && `a budget at ${budgetPercent} %`,
    dailySpendUsd !== null && `a day's spending at ${usdText(dailySpendUsd)}`,
  ];
  return <ul class="num">{lines.map((line) => line !== false && <li key={line}>{line}</li>)}</ul>;
}

export function deliveriesPath(id: string): string {
  return `/webhooks/${encodeURIComponent(id)}/deliveries`;
}

const TONES = { delivered: 'good', failed: 'bad', pending: 'warn' } as const;

export function DeliveryState({ delivery: { status } }: { delivery: Delivery }) {
  return <State value={status} tone={TONES[status]} />;
}

interface WebhookDrawerProps {
  readonly webhook: Webhook;
  readonly close: () => void;
  readonly changed: () => void;
  /** A message was sent. */
  readonly sent: () => void;
}

type DrawerWindow =
  | { readonly kind: 'change' | 'rotate' | 'delete' }
  | { readonly kind: 'secret'; readonly of: SecretWebhook }
  | { readonly kind: 'message'; readonly delivery: Delivery };

export function WebhookDrawer({ webhook, close, changed, sent }: WebhookDrawerProps) {
  const { id, url, thresholds, paused, createdAt } = webhook;
  const path = `/webhooks/${encodeURIComponent(id)}`;
  const list = useCursorList<Delivery>(`${deliveriesPath(id)}?limit=20`);
  const window = useSignal<DrawerWindow | undefined>(undefined);
  const tested = useSignal<Delivery | undefined>(undefined);
  const action = useAction();
  const shut = (): void => {
    window.value = undefined;
  };
  const test = (): void => {
    tested.value = undefined;
    void action.run(async () => {
      tested.value = await call<Delivery>(`${path}/test`, { method: 'POST' });
      list.first.reload();
      sent();
    });
  };
  const pause = (): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body: { paused: !paused } });
      toast(paused ? 'The webhook tells again' : 'The webhook is paused');
      changed();
    });
  };
  return (
    <Overlay kind="drawer" title="Webhook" close={close}>
      <Facts
        of={[
          ['Address', <span class="text">{url}</span>],
          ['Tells', <Tells thresholds={thresholds} />],
          paused && ['State', <State value="paused" tone="warn" />],
          ['Since', <Time iso={createdAt} />],
          [
            'Id',
            <>
              <Id value={id} ends={8} /> <Copy text={id} />
            </>,
          ],
        ]}
      />
      <p class="row">
        <button type="button" class="primary" disabled={action.isRunning} onClick={test}>
          Send a test
        </button>
        <button type="button" onClick={() => (window.value = { kind: 'change' })}>
          Change
        </button>
        <button type="button" disabled={action.isRunning} onClick={pause}>
          {paused ? 'Resume' : 'Pause'}
        </button>
        <button type="button" onClick={() => (window.value = { kind: 'rotate' })}>
          New secret
        </button>
        <button type="button" class="danger" onClick={() => (window.value = { kind: 'delete' })}>
          Delete
        </button>
      </p>
      <Refusal error={action.error} />
      {tested.value !== undefined && <Tested delivery={tested.value} />}
      <section>
        <h3>Messages of the last 40 days</h3>
        <CursorTable
          label="Messages"
          list={list}
          empty={
            <Empty title="Nothing was told yet">
              <p>Thresholds are looked at once a minute. A test is sent at once.</p>
            </Empty>
          }
          columns={messageColumns((delivery) => (window.value = { kind: 'message', delivery }))}
          keyOf={(row) => row.id}
        />
      </section>
      {window.value !== undefined && (
        <DrawerOverlay
          window={window.value}
          webhook={webhook}
          path={path}
          shut={shut}
          show={(next) => (window.value = next)}
          changed={changed}
          deleted={() => {
            close();
            changed();
          }}
        />
      )}
    </Overlay>
  );
}

interface DrawerOverlayProps {
  readonly window: DrawerWindow;
  readonly webhook: Webhook;
  readonly path: string;
  readonly shut: () => void;
  readonly show: (window: DrawerWindow) => void;
  readonly changed: () => void;
  readonly deleted: () => void;
}

function DrawerOverlay(props: DrawerOverlayProps) {
  const { window, webhook, path, shut, show, changed, deleted } = props;
  switch (window.kind) {
    case 'change':
      return (
        <Overlay title="Change the webhook" close={shut}>
          <WebhookForm
            given={webhook}
            save={async (url, thresholds) => {
              await call(path, { method: 'PATCH', body: { url, thresholds } });
              toast('The webhook is changed');
              shut();
              changed();
            }}
          />
        </Overlay>
      );
    case 'rotate':
      return (
        <RotateSecret path={path} close={shut} rotated={(of) => show({ kind: 'secret', of })} />
      );
    case 'delete':
      return (
        <Confirm
          title="Delete the webhook"
          does="Delete"
          says="The webhook is deleted"
          close={shut}
          run={() => call(path, { method: 'DELETE' })}
          done={deleted}
        >
          <p>
            Nothing more is sent to <strong class="text">{webhook.url}</strong>, and what it was
            sent is forgotten.
          </p>
        </Confirm>
      );
    case 'secret':
      return <ShownSecret of={window.of} close={shut} />;
    case 'message':
      return (
        <Overlay title={window.delivery.event} close={shut}>
          <DeliveryFacts delivery={window.delivery} />
          <CodeBlock title="The message" text={JSON.stringify(window.delivery.payload, null, 2)} />
        </Overlay>
      );
  }
}

interface RotateSecretProps {
  readonly path: string;
  readonly close: () => void;
  readonly rotated: (of: SecretWebhook) => void;
}

function RotateSecret({ path, close, rotated }: RotateSecretProps) {
  const made = useSignal<SecretWebhook | undefined>(undefined);
  return (
    <Confirm
      title="Give it a new secret"
      does="Make a new secret"
      keeps="Keep the old one"
      close={close}
      run={async () => {
        made.value = await call<SecretWebhook>(`${path}/secret/rotate`, { method: 'POST' });
      }}
      done={() => {
        if (made.value !== undefined) rotated(made.value);
      }}
    >
      <p>
        For 24 hours messages are signed with both, so that you can change the receiver meanwhile.
      </p>
    </Confirm>
  );
}

/** What a test came to, in words. */
function Tested({ delivery }: { delivery: Delivery }) {
  const { status, responseStatus, error } = delivery;
  return (
    <p class={`notice ${TONES[status]}`} role="status">
      {status === 'delivered'
        ? `The test was taken: the address answered with ${responseStatus}.`
        : status === 'pending'
          ? 'The test is on its way: the list says what becomes of it.'
          : `The test did not arrive. ${error ?? ''}`}
    </p>
  );
}

/** Why it is where it is: the address's answer, or what kept it from answering. */
function Reason({ delivery }: { delivery: Delivery }) {
  const { error, responseStatus, nextAttemptAt, attempts } = delivery;
  const words = error ?? (responseStatus === null ? 'on its way' : `answered ${responseStatus}`);
  return (
    <span class="under text">
      {words}
      {attempts > 1 && `, sent ${attempts} times`}
      {nextAttemptAt !== null && (
        <>
          , again <Time iso={nextAttemptAt} ago />
        </>
      )}
    </span>
  );
}

function messageColumns(open: (delivery: Delivery) => void): readonly Column<Delivery>[] {
  return [
    {
      name: 'Message',
      show: (delivery) => (
        <>
          <button type="button" class="link strong text" onClick={() => open(delivery)}>
            {delivery.event}
          </button>
          <span class="under">
            <Time iso={delivery.createdAt} />
          </span>
        </>
      ),
    },
    {
      name: 'State',
      show: (delivery) => (
        <>
          <DeliveryState delivery={delivery} />
          <Reason delivery={delivery} />
        </>
      ),
    },
  ];
}

function DeliveryFacts({ delivery }: { delivery: Delivery }) {
  const { id, attempts, responseStatus, error, createdAt, nextAttemptAt } = delivery;
  return (
    <Facts
      of={[
        ['State', <DeliveryState delivery={delivery} />],
        error !== null && ['Why', <span class="text">{error}</span>],
        ['Answer of the address', responseStatus === null ? 'none' : String(responseStatus)],
        ['Sent', attempts === 1 ? 'once' : `${attempts} times`],
        ['Made', <Time iso={createdAt} />],
        nextAttemptAt !== null && ['Again', <Time iso={nextAttemptAt} ago />],
        [
          'webhook-id',
          <>
            <Id value={id} ends={8} /> <Copy text={id} />
          </>,
        ],
      ]}
    />
  );
}

const VERIFY = `import { Webhook } from 'standardwebhooks';

// Throws for a message that is not signed with the secret.
const message = new Webhook(secret).verify(body, headers);`;

/** The one time that the secret is shown. */
export function ShownSecret({ of, close }: { of: SecretWebhook; close: () => void }) {
  const { secret, previousSecretUntil } = of;
  const isNew = previousSecretUntil === undefined;
  return (
    <ShownOnce
      title={isNew ? 'The webhook is made' : 'The new secret'}
      secret={secret}
      close={close}
      about="Its messages are signed with this secret, as Standard Webhooks says. It is shown only now: copy it before you close this."
    >
      {!isNew && (
        <p>
          Until <Time iso={previousSecretUntil} /> messages are signed with the secret before as
          well.
        </p>
      )}
      <CodeBlock title="How your address checks a message" text={VERIFY} />
    </ShownOnce>
  );
}
