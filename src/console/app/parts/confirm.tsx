/** A dialog that requests confirmation of an action that cannot be undone, and runs it. */
import type { ComponentChildren } from 'preact';
import { toast } from './announce.tsx';
import { ErrorMessage, useAction } from './form.tsx';
import { Overlay } from './overlay.tsx';

interface ConfirmProps {
  readonly title: string;
  /** Label of the button that runs the action. */
  readonly label: string;
  /** Label of the other button. */
  readonly cancel?: string;
  /** Notice after the action has succeeded. */
  readonly notice?: string;
  readonly isReady?: boolean;
  readonly close: () => void;
  readonly run: () => Promise<unknown>;
  readonly done: () => void;
  readonly children: ComponentChildren;
}

export function Confirm(props: ConfirmProps) {
  const { title, label, cancel = 'Cancel', notice, isReady = true, close, run, done } = props;
  const action = useAction();
  const confirm = (): void => {
    void action.run(async () => {
      await run();
      if (notice !== undefined) toast(notice);
      done();
    });
  };
  return (
    <Overlay title={title} close={close}>
      {props.children}
      <ErrorMessage error={action.error} />
      <p class="row end">
        <button type="button" onClick={close}>
          {cancel}
        </button>
        <button
          type="button"
          class="danger"
          disabled={!isReady || action.isRunning}
          onClick={confirm}
        >
          {label}
        </button>
      </p>
    </Overlay>
  );
}
