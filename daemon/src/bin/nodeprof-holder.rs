//! `nodeprof-holder`: the one process of nodeprof with CAP_SYS_ADMIN. It makes fanotify groups for `nodeprofd`, hands them over a
//! socket that systemd has opened, and sees to it that no exec waits for one that hangs ([`nodeprof_bpf::hold::guard`]). It does
//! nothing else, and reads nothing that anybody else has written.

use std::{
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use nodeprof_bpf::hold::guard::guard;
use sd_notify::NotifyState;

/// How often it tells the watchdog that it goes round, and looks whether anybody needs it.
const ROUND: Duration = Duration::from_secs(5);
/// What it waits for before it tries again to take in who asks.
const BREATH: Duration = Duration::from_millis(50);

/// Services that are guarded now.
static GUARDED: AtomicUsize = AtomicUsize::new(0);

fn main() -> ExitCode {
    let handed = sd_notify::listen_fds().ok().and_then(|mut all| all.next());
    let Some(descriptor) = handed else {
        eprintln!(
            "nodeprof-holder: no socket was handed over; it is started by systemd: systemctl start nodeprof-holder.socket"
        );
        return ExitCode::FAILURE;
    };
    // SAFETY: handed to this process, and told of once: the variables are unset now.
    let listener = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let notify = |state| {
        // Nobody listens where there is no systemd.
        let _ = sd_notify::notify(false, &[state]);
    };
    notify(NotifyState::Ready);
    loop {
        let mut asked = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        let came = unsafe { libc::poll(&mut asked, 1, ROUND.as_millis() as libc::c_int) };
        notify(NotifyState::Watchdog);
        if came == 0 && GUARDED.load(Ordering::Acquire) == 0 {
            return ExitCode::SUCCESS; // systemd starts it again for who comes next
        }
        if came <= 0 {
            continue;
        }
        // SAFETY: asks for no address; the descriptor is new.
        let socket = unsafe {
            match libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            ) {
                ..0 => {
                    // Out of descriptors, say: it gets better by waiting.
                    std::thread::sleep(BREATH);
                    continue;
                }
                new => OwnedFd::from_raw_fd(new),
            }
        };
        GUARDED.fetch_add(1, Ordering::AcqRel);
        let guarding = std::thread::Builder::new().spawn(move || {
            guard(&socket);
            GUARDED.fetch_sub(1, Ordering::AcqRel);
        });
        // Without a thread for it who asked sees the end of the socket, and asks again. The others stay guarded.
        if guarding.is_err() {
            GUARDED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
