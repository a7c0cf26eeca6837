/** The section of automatic top-ups: the saved card, its settings and their form. */
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { Confirm } from '../parts/confirm.tsx';
import { ActionForm, AmountField, useForm } from '../parts/form.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { type Resource, useCall } from '../resource.ts';
import type { AutoTopUp } from '../shapes.ts';

const PATH = '/billing/auto-top-up';
const USUAL = { keepUsd: 20, monthlyUsd: 200 };

export function AutoTopUpSection() {
  const settings = useCall<AutoTopUp>(PATH);
  return (
    <section>
      <h2>Automatic top-up</h2>
      <Loaded from={settings}>
        {(data) =>
          data.card === null ? (
            <p class="soft">
              Save a card with your next payment to charge it when the balance gets low.
            </p>
          ) : (
            <Settings data={data} from={settings} />
          )
        }
      </Loaded>
    </section>
  );
}

function Settings({ data, from }: { data: AutoTopUp; from: Resource<AutoTopUp> }) {
  const { card, keepUsd, chargeUsd, monthlyUsd, chargedThisMonthUsd, problem, stopped } = data;
  return (
    <>
      {keepUsd === null || chargeUsd === null || monthlyUsd === null ? (
        <p>
          The card <b>{card}</b> is saved and is not charged automatically.
        </p>
      ) : (
        <p>
          {usdText(chargeUsd)} are charged to <b>{card}</b> when the balance is below{' '}
          {usdText(keepUsd)}, at most {usdText(monthlyUsd)} a month. Charged this month:{' '}
          {usdText(chargedThisMonthUsd)}.
        </p>
      )}
      {problem !== null && (
        <Notice tone="bad">
          {stopped ? 'The charges have stopped' : 'The last charge failed'}: {problem}.{' '}
          {stopped
            ? 'Save the settings again to continue, or save another card with a payment.'
            : 'The next attempt follows within a day.'}
        </Notice>
      )}
      <p class="row">
        <DialogButton label={keepUsd === null ? 'Switch on' : 'Change'}>
          {(close) => <SettingsWindow data={data} close={close} saved={from.reload} />}
        </DialogButton>
        <DialogButton label="Delete the card">
          {(close) => (
            <Confirm
              title="Delete the saved card?"
              label="Delete the card"
              run={() => call(PATH, { method: 'DELETE' })}
              done={() => {
                close();
                from.reload();
              }}
              close={close}
            >
              <p>The card is not charged again. To save it again, pay once.</p>
            </Confirm>
          )}
        </DialogButton>
      </p>
    </>
  );
}

interface WindowProps {
  readonly data: AutoTopUp;
  readonly saved: () => void;
  readonly close: () => void;
}

function SettingsWindow({ data, saved, close }: WindowProps) {
  const { action, values, field } = useForm({
    keepUsd: String(data.keepUsd ?? USUAL.keepUsd),
    chargeUsd: String(data.chargeUsd ?? USUAL.keepUsd),
    monthlyUsd: String(data.monthlyUsd ?? USUAL.monthlyUsd),
  });
  const save = (): void =>
    void action.run(async () => {
      const body = {
        keepUsd: Number(values.keepUsd),
        chargeUsd: Number(values.chargeUsd),
        monthlyUsd: Number(values.monthlyUsd),
      };
      await call(PATH, { method: 'PUT', body });
      close();
      saved();
    });
  return (
    <Overlay title="Automatic top-up" close={close}>
      <ActionForm action={action} submit={save} label="Save">
        <AmountField {...field('keepUsd')} label="Keep at least, in USD" required />
        <AmountField {...field('chargeUsd')} label="Charge each time, in USD" required />
        <AmountField
          {...field('monthlyUsd')}
          label="Maximum per month, in USD"
          hint="No charge is made above it, even if the balance reaches zero."
          required
        />
      </ActionForm>
    </Overlay>
  );
}
